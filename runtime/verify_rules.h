// The rules of the proof, one function each; verify_plan.cpp says in which order they can rely on
// each other.
#pragma once

#include "runtime/mesh.h"
#include "runtime/plan.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::rt {

/// Collects errors up to a bound.
class PlanErrors {
public:
  void add(std::string sentence) {
    if (list.size() < limit)
      list.push_back(std::move(sentence));
  }
  bool empty() const { return list.empty(); }
  std::vector<std::string> list;

private:
  static constexpr size_t limit = 64;
};

/// Bytes [begin, end) that a buffer may mean on some rank.
struct ByteRange {
  int64_t begin = 0, end = 0;
  bool overlaps(const ByteRange &other) const { return begin < other.end && other.begin < end; }
};

/// The range of a buffer within its region over all coordinates of the mesh.
ByteRange rangeOf(const pb::BufferRef &buffer, const Mesh &mesh);

/// "block.forward, instruction 3 (matmul at gpt2.yaml:31:7)".
std::string instructionName(const pb::Plan &plan, const pb::Subprogram &subprogram, int instruction);

/// "stage 1, action 5 (BACKWARD of micro-batch 0)".
std::string actionName(int stage, int index, const pb::Action &action, bool isEvaluation);

/// The call's binding of a region; the stage's own for INPUTS and SCALARS; null when there is none.
const pb::Binding *bindingOf(const pb::Stage &stage, const pb::Call &call, pb::Region region);

/// The subprogram, from 1, that an action runs of a call; 0 where it runs none.
uint32_t subprogramOf(const pb::Call &call, pb::Action::Kind kind, bool isEvaluation);

/// The call's subprograms with their names, for rules that go over all of them.
std::vector<std::pair<const char *, uint32_t>> subprogramsOf(const pb::Call &call);

/// Indices, enums, counts and sizes: what every other rule takes for granted.
void verifyStructure(const pb::Plan &plan, PlanErrors &errors);

/// Buffers lie in their regions, regions in their bindings, bindings in the arena; collectives are
/// complete.
void verifyBounds(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// Launches and library calls give what their kernels declare: operands, their access and their bytes.
void verifyKernels(const pb::Plan &plan, PlanErrors &errors);

/// Collectives go over axes that their place in the step allows.
void verifyGroups(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// Parameters, optimizer shares and layers are owned exactly as often as the plan says; gradients
/// are summed over exactly their partial axes and counted once in the norm.
void verifyOwnership(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// The data: each byte is followed through every subprogram and every stage's lists (verify/README.md).
void verifyData(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// Sends meet receives, groups issue the same collectives in the same order, and no rank waits for
/// ever.
void verifyCommunication(const pb::Plan &plan, PlanErrors &errors);

} // namespace espalier::rt
