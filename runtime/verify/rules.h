// The entry points of the rules, with the letters of README.md. verify_plan.cpp defines the order in which the rules
// rely on each other.
#pragma once

#include "format/mesh.h"
#include "format/plan.pb.h"
#include "runtime/comm/comm.h"

#include <fmt/format.h>
#include <string>
#include <vector>

namespace espalier::rt {

/// Collects errors up to a limit.
class PlanErrors {
public:
  /// Adds an error, unless the limit is reached.
  void add(std::string sentence) {
    if (list.size() < limit)
      list.push_back(std::move(sentence));
  }
  bool empty() const { return list.empty(); }
  std::vector<std::string> list;

private:
  static constexpr size_t limit = 64;
};

/// Names an instruction, for example "block.forward, instruction 3 (matmul at gpt2.yaml:31:7)".
std::string instructionName(const pb::Plan &plan, const pb::Subprogram &subprogram, int instruction);

namespace verify {

/// Returns the bytes of one element.
inline int64_t widthOf(pb::DataType type) { return static_cast<int64_t>(elementBytes(type)); }

/// Returns the type in which a bucket's gradients are accumulated and summed.
inline pb::DataType gradientType(const pb::Plan &plan, const pb::Bucket &bucket) {
  return plan.values(static_cast<int>(bucket.gradient().value())).type();
}

/// Returns the product of the factors, or -1 if a factor is negative or the product exceeds 2^62.
int64_t product(const std::vector<int64_t> &factors);

/// The numbers from `least` to `greatest`, both included.
struct Range {
  int64_t least = 0, greatest = 0;
};

/// Returns the values that an affine expression takes over all ranks, layers and micro-batches of the plan, without the
/// terms for the seed and `first`.
Range rangeOf(const pb::Affine &affine, const pb::Plan &plan);

/// Returns whether an affine expression has no variables.
bool isConstant(const pb::Affine &affine);

/// Returns the bytes [least, greatest) of its region that a buffer may access on any rank. The range covers all shards
/// and every address that `reads_at` gives. The range of a buffer that is too large ends at 2^62.
Range bytesOf(const pb::Buffer &buffer, const pb::Plan &plan, const Mesh &mesh);

/// Returns the offset of an allocation's first copy in a ring slot.
int64_t offsetOf(const pb::Place &place, uint64_t slot);

/// Names a call, for example "stage 1, block.3".
std::string callName(const pb::Plan &plan, int stage, uint32_t call);

/// Returns the binding of a region, or null.
const pb::Binding *bindingOf(const pb::Call &call, uint32_t region);

/// Returns the use of a bucket by a call, or null.
const pb::BucketUse *useOf(const pb::Call &call, uint32_t bucket);

/// Calls visit(buffer) for each buffer that an instruction accesses.
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

/// Rule A: checks indices, enumerations, counts and sizes. All other rules rely on this one.
void verifyStructure(const pb::Plan &plan, PlanErrors &errors);
/// Rule A for stages: checks allocations, calls, chunks and instruction streams.
void verifyStages(const pb::Plan &plan, PlanErrors &errors);

/// Rule B: checks that buffers lie inside their bindings, bindings inside allocations, and allocations inside arenas.
void verifyBounds(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// Rule D: checks parameters in buckets, buckets in regions, and slices in their whole values.
void verifyLayout(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// Rule E: checks that launches and library calls match the declarations of their kernels.
void verifyKernels(const pb::Plan &plan, PlanErrors &errors);

/// Rule E: checks that launches pass the values that their kernels were compiled for.
void verifyUses(const pb::Plan &plan, PlanErrors &errors);

/// Rule G: checks that transfers change shardings as their kind requires.
void verifyShardings(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);
/// Rule G: checks that instructions use partial sums only linearly, and that sums over sharded dimensions are declared
/// partial.
void verifyTerms(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// Rule K: checks that the dims of values agree with parameters, transfers and library calls.
void verifyShapes(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// Rules C, F and J: tracks every byte through the subprograms and the instruction streams of all stages.
void verifyData(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

/// Rules H and I: checks that the transfers of all stages match and that no rank deadlocks.
void verifyOrder(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

} // namespace verify
} // namespace espalier::rt
