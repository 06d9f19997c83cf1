// The rules of the proof, a function each, by the letters of README.md; verify_plan.cpp says in which order they can
// rely on each other.
#pragma once

#include "runtime/comm/comm.h"
#include "runtime/mesh.h"
#include "runtime/plan.pb.h"

#include <fmt/format.h>
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

/// "block.forward, instruction 3 (matmul at gpt2.yaml:31:7)".
std::string instructionName(const pb::Plan &plan, const pb::Subprogram &subprogram, int instruction);

namespace verify {

/// Bytes of one element.
inline int64_t widthOf(pb::DataType type) { return static_cast<int64_t>(elementBytes(type)); }

/// Product of the factors; -1 where one is negative or it passes 2^62.
int64_t product(const std::vector<int64_t> &factors);

/// Numbers [least, greatest].
struct Range {
  int64_t least = 0, greatest = 0;
};

/// What an affine number may be on some rank, in some layer and micro-batch of the plan. Without seed and `first`.
Range rangeOf(const pb::Affine &affine, const pb::Plan &plan);

/// Whether an affine number is one number everywhere.
bool isConstant(const pb::Affine &affine);

/// Bytes [least, greatest) of its region that a buffer may mean on some rank: all parts, wherever it reads. A buffer
/// that is too large to count ends at 2^62.
Range bytesOf(const pb::Buffer &buffer, const pb::Plan &plan, const Mesh &mesh);

/// Where a place lies in a slot, in its first copy.
int64_t offsetOf(const pb::Place &place, uint64_t slot);

/// "stage 1, block.3".
std::string callName(const pb::Plan &plan, int stage, uint32_t call);

/// The binding of a region, or null.
const pb::Binding *bindingOf(const pb::Call &call, uint32_t region);

/// The use of a bucket by a call, or null.
const pb::BucketUse *useOf(const pb::Call &call, uint32_t bucket);

/// Calls visit(buffer) for each buffer that an instruction touches.
template <typename Visit> void forEachBuffer(const pb::Plan &plan, const pb::Instruction &instruction, Visit visit) {
  for (const pb::Buffer &buffer : instruction.launch().buffers())
    visit(buffer);
  for (const pb::Buffer &buffer : instruction.call().buffers())
    visit(buffer);
  if (instruction.call().has_workspace())
    visit(instruction.call().workspace());
  if (!instruction.has_start())
    return;
  const pb::Transfer &transfer = plan.transfers(static_cast<int>(instruction.start()));
  for (const pb::Buffer &buffer : transfer.from())
    visit(buffer);
  for (const pb::Buffer &buffer : transfer.to())
    visit(buffer);
}

/// A: indices, enumerations, counts and sizes. What every other rule takes for granted.
void verifyStructure(const pb::Plan &plan, PlanErrors &errors);
void verifyStages(const pb::Plan &plan, PlanErrors &errors);

/// B: buffers lie in what their calls bind, bindings in places, places in the arenas.
void verifyBounds(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// D: parameters in buckets, buckets in regions, parts.
void verifyLayout(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// E: launches and library calls give what their kernels declare.
void verifyKernels(const pb::Plan &plan, PlanErrors &errors);

/// E: launches hand over the values that their kernels were compiled to take.
void verifyUses(const pb::Plan &plan, PlanErrors &errors);

/// G: transfers change shardings as their kind does.
void verifyShardings(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);
/// G: instructions add up what ranks hold terms of, and leave terms of what they add up over parts.
void verifyTerms(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// K: values have the dims that parameters, transfers and library calls make of them.
void verifyShapes(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// C, F, J: each byte is followed through every subprogram and every stage's lists.
void verifyData(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// H, I: transfers of all stages meet, and no rank waits for ever.
void verifyOrder(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

} // namespace verify
} // namespace espalier::rt
