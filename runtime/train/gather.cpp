// Every rank writes the elements that it owns. If optimizer state is sharded, a summed gradient is valid only in the
// rank's own shard.
#include "runtime/train/gather.h"

#include "format/abi.h"
#include "runtime/kernels/element.h"

#include <algorithm>

namespace espalier::rt {

Tensors &Gatherer::at(std::vector<Tensors> &steps, size_t step) {
  if (steps.size() <= step)
    steps.resize(step + 1);
  return steps[step];
}

void Gatherer::addParameters(const Executor &executor, size_t step) {
  std::lock_guard lock(mutex);
  Tensors &tensors = at(parameters, step);
  for (const PlacedParameter &placed : placedParameters(program.plan(), program.mesh(), executor.rankProgram().rank)) {
    if (placed.isStoredSpokenFor())
      add(executor, tensors, placed, placed.bucket->stored(), placed.bucket->type(), placed.heldStored(), 1);
  }
}

void Gatherer::addGradients(const Executor &executor, const Scalars &scalars, size_t step) {
  std::lock_guard lock(mutex);
  Tensors &tensors = at(gradients, step);
  float scale = 1 / (scalars[TokenCount] * scalars[LossScale]);
  for (const PlacedParameter &placed : placedParameters(program.plan(), program.mesh(), executor.rankProgram().rank)) {
    if (!placed.isOwnSpokenFor || placed.bucket->frozen())
      continue;
    const pb::Buffer &gradient = placed.bucket->gradient();
    HeldElements summed = placed.heldGradient();
    summed.at += placed.own.range.begin - summed.range.begin;
    summed.range = placed.own.range;
    pb::DataType type = program.plan().values(static_cast<int>(gradient.value())).type();
    add(executor, tensors, placed, gradient, type, summed, scale);
  }
}

void Gatherer::add(const Executor &executor, Tensors &tensors, const PlacedParameter &placed, const pb::Buffer &buffer,
                   pb::DataType type, const HeldElements &held, float scale) const {
  std::vector<float> &whole = tensors[placed.name];
  whole.resize(placed.elements());
  auto size = static_cast<int64_t>(elementBytes(type));
  auto [begin, end] = held.range;
  std::vector<std::byte> values((end - begin) * size);
  executor.device().copyOut(values.data(), executor.address(placed.call, buffer) + held.at * size, values.size());
  placed.block.visitRuns([&, begin = begin, end = end](int64_t local, int64_t global, int64_t count) {
    for (int64_t i = std::max(local, begin); i < std::min(local + count, end); ++i)
      whole[global + i - local] = scale * loadElement(type, values.data(), i - begin);
  });
}

} // namespace espalier::rt
