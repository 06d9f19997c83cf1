// A parameter's values are computed once per rank in f32, a run of elements per job.
#include "runtime/train/initialize.h"

#include "runtime/parameter_block.h"
#include "runtime/train/initial_value.h"

#include <algorithm>
#include <vector>

namespace espalier::rt {
namespace {

constexpr int64_t chunkElements = 1 << 14;

struct Fill {
  uint32_t key;
  InitialKind kind;
  double stddev;
  int64_t global, count;
  float *values;
};

void fillChunk(void *context, int64_t part, int) {
  const Fill &fill = *static_cast<const Fill *>(context);
  int64_t i = part * chunkElements, end = std::min(fill.count, i + chunkElements);
  // Both numbers of a pair at once: a logarithm and a root serve two.
  auto startsPair = [&] { return fill.kind == InitialKind::Normal && (fill.global + i) % 2 == 0 && i + 1 < end; };
  while (i < end) {
    if (startsPair()) {
      NormalPair pair = initialNormals(fill.key, static_cast<uint64_t>(fill.global + i) / 2);
      fill.values[i++] = static_cast<float>(fill.stddev * pair.even);
      fill.values[i++] = static_cast<float>(fill.stddev * pair.odd);
    } else {
      fill.values[i] = initialValue(fill.key, fill.kind, fill.stddev, fill.global + i);
      ++i;
    }
  }
}

/// The block's initial values in f32, padding zero.
std::vector<float> blockValues(const pb::Plan &plan, const pb::Parameter &parameter, const ParameterBlock &block,
                               ThreadPool &pool) {
  std::vector<float> values(block.elements(), 0.0f);
  Fill fill;
  fill.key = initialKey(plan.settings().seed(), parameter.name());
  fill.kind = static_cast<InitialKind>(parameter.initialization().kind());
  fill.stddev = parameter.initialization().stddev();
  block.visitRuns([&](int64_t local, int64_t global, int64_t count) {
    fill.global = global;
    fill.count = count;
    fill.values = values.data() + local;
    pool.run((count + chunkElements - 1) / chunkElements, fillChunk, &fill);
  });
  return values;
}

} // namespace

void initializeParameters(const Program &program, Executor &executor, ThreadPool &pool) {
  const pb::Plan &plan = program.plan();
  int rank = executor.rankProgram().rank;
  Device &device = executor.device();
  for (const ParameterPlace &place : parameterPlaces(plan, executor.rankProgram().stage)) {
    ParameterBlock block(*place.parameter, program.mesh(), rank);
    std::vector<float> values = blockValues(plan, *place.parameter, block, pool);
    pb::DataType type = place.parameter->type();
    std::vector<std::byte> stored(block.elements() * elementBytes(type));
    for (int64_t i = 0; i < block.elements(); ++i)
      storeElement(type, stored.data(), i, values[i]);
    device.copyIn(place.values, stored.data(), stored.size());
    StateRange share = stateRange(*place.slot, program.mesh(), rank);
    int64_t copies = place.slot->master() ? 3 : 2;
    device.fill(place.state, 0, copies * place.slot->state_elements() * sizeof(float));
    if (place.slot->master())
      device.copyIn(place.state, values.data() + share.begin, (share.end - share.begin) * sizeof(float));
  }
}

} // namespace espalier::rt
