// Every rank writes the elements it speaks for; under ZeRO-1 a reduced gradient is valid in the
// rank's own share only.
#include "runtime/train/gather.h"

#include "runtime/abi.h"
#include "runtime/parameter_block.h"

#include <algorithm>

namespace espalier::rt {

void Gatherer::addParameters(const Executor &executor, size_t step) {
  add(executor, parameters, step, /*wantsGradients=*/false);
}

void Gatherer::addGradients(const Executor &executor, size_t step) {
  add(executor, gradients, step, /*wantsGradients=*/true);
}

void Gatherer::add(const Executor &executor, std::vector<Tensors> &steps, size_t step, bool wantsGradients) {
  std::lock_guard lock(mutex);
  if (steps.size() <= step)
    steps.resize(step + 1);
  const Mesh &mesh = program.mesh();
  int rank = executor.rankProgram().rank;
  Scalars scalars = executor.scalars();
  float scale = wantsGradients ? 1 / (scalars[TokenCount] * scalars[LossScale]) : 1;
  for (const ParameterPlace &place : parameterPlaces(program.plan(), executor.rankProgram().stage)) {
    StateRange valid = {0, static_cast<int64_t>(place.slot->local_elements())};
    bool isShared = wantsGradients && place.slot->state_elements() < place.slot->local_elements();
    if (isShared)
      valid = stateRange(*place.slot, mesh, rank);
    if (!ParameterBlock::isSpeaker(*place.parameter, mesh, rank, isShared))
      continue;
    int64_t elements = 1;
    for (uint64_t size : place.parameter->shape())
      elements *= size;
    std::vector<float> &whole = steps[step][place.parameter->name()];
    whole.resize(elements);
    pb::DataType type = wantsGradients ? pb::F32 : place.parameter->type();
    std::vector<std::byte> values(place.slot->local_elements() * elementBytes(type));
    executor.device().copyOut(values.data(), wantsGradients ? place.gradient : place.values, values.size());
    ParameterBlock(*place.parameter, mesh, rank).visitRuns([&](int64_t local, int64_t global, int64_t count) {
      for (int64_t i = std::max(local, valid.begin); i < std::min(local + count, valid.end); ++i)
        whole[global + i - local] = scale * loadElement(type, values.data(), i);
    });
  }
}

} // namespace espalier::rt
