// Functions that several rules share.
#include "runtime/verify/rules.h"

#include <algorithm>

namespace espalier::rt {

std::string instructionName(const pb::Plan &plan, const pb::Subprogram &subprogram, int instruction) {
  std::string name = fmt::format("{}, instruction {}", subprogram.name(), instruction);
  uint32_t location = subprogram.instructions(instruction).location();
  if (location < static_cast<uint32_t>(plan.locations_size())) {
    const pb::Location &place = plan.locations(static_cast<int>(location));
    name += fmt::format(" ({} at {}:{}:{})", place.op(), place.file(), place.line(), place.column());
  }
  return name;
}

namespace verify {

constexpr int64_t limit = int64_t(1) << 62;

int64_t product(const std::vector<int64_t> &factors) {
  int64_t result = 1;
  for (int64_t factor : factors)
    if (factor < 0 || __builtin_mul_overflow(result, factor, &result) || result > limit)
      return -1;
  return result;
}

Range rangeOf(const pb::Affine &affine, const pb::Plan &plan) {
  uint32_t microBatches = 1;
  int64_t layers = 1;
  for (const pb::Entry &entry : plan.entries())
    microBatches = std::max(microBatches, entry.micro_batches());
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Call &call : stage.calls())
      layers = std::max<int64_t>(layers, call.layer() + 1);
  const pb::Mesh &mesh = plan.mesh();
  Range range = {affine.constant(), affine.constant()};
  auto add = [&](int64_t step, int64_t size) { (step < 0 ? range.least : range.greatest) += step * (size - 1); };
  add(affine.micro_batch(), microBatches);
  add(affine.layer(), layers);
  add(affine.pp(), mesh.pp());
  add(affine.dp(), mesh.dp());
  add(affine.cp(), mesh.cp());
  add(affine.ep(), mesh.ep());
  add(affine.tp(), mesh.tp());
  return range;
}

Range bytesOf(const pb::Buffer &buffer, const pb::Plan &plan, const Mesh &mesh) {
  int64_t bytes = product({static_cast<int64_t>(buffer.bytes()), mesh.count(buffer.part())});
  int64_t offset = static_cast<int64_t>(buffer.offset());
  if (bytes < 0 || bytes > limit - offset)
    return {offset, limit};
  if (!buffer.has_reads_at())
    return {offset, offset + bytes};
  Range at = rangeOf(buffer.reads_at(), plan);
  bool isTooLarge =
      at.greatest > limit || at.least < -limit || offset + bytes > limit - std::max<int64_t>(0, at.greatest);
  return isTooLarge ? Range{offset, limit} : Range{offset + at.least, offset + bytes + at.greatest};
}

int64_t offsetOf(const pb::Place &place, uint64_t slot) {
  if (place.offsets_size() > 1)
    return static_cast<int64_t>(place.offsets(static_cast<int>(slot)));
  return static_cast<int64_t>(place.offsets(0) + slot * place.stride());
}

bool isConstant(const pb::Affine &affine) {
  return affine.micro_batch() == 0 && affine.layer() == 0 && affine.seed() == 0 && affine.pp() == 0 &&
         affine.dp() == 0 && affine.cp() == 0 && affine.ep() == 0 && affine.tp() == 0 && affine.first() == 0;
}

std::string callName(const pb::Plan &plan, int stage, uint32_t call) {
  return fmt::format("stage {}, {}", stage, plan.stages(stage).calls(static_cast<int>(call)).name());
}

const pb::Binding *bindingOf(const pb::Call &call, uint32_t region) {
  auto binding = std::ranges::find(call.bindings(), region, &pb::Binding::region);
  return binding == call.bindings().end() ? nullptr : &*binding;
}

const pb::BucketUse *useOf(const pb::Call &call, uint32_t bucket) {
  auto use = std::ranges::find(call.buckets(), bucket, &pb::BucketUse::bucket);
  return use == call.buckets().end() ? nullptr : &*use;
}

} // namespace verify
} // namespace espalier::rt
