// Each rank computes the values of a parameter once, in f32. One job of the thread pool computes one chunk of elements.
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
  // Computes both numbers of a pair at once, because they share a logarithm and a square root.
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

/// Returns the initial values of a block in f32. Padding is zero.
std::vector<float> blockValues(const pb::Plan &plan, const PlacedParameter &placed, ThreadPool &pool) {
  std::vector<float> values(placed.block.elements(), 0.0f);
  const pb::Initialization &initialization = placed.parameter->initialization();
  Fill fill;
  fill.key = initialKey(plan.settings().seed(), placed.name);
  fill.kind = static_cast<InitialKind>(initialization.kind());
  fill.stddev = initialization.stddev();
  placed.block.visitRuns([&](int64_t local, int64_t global, int64_t count) {
    fill.global = global;
    fill.count = count;
    fill.values = values.data() + local;
    pool.run((count + chunkElements - 1) / chunkElements, fillChunk, &fill);
  });
  return values;
}

/// Writes the elements `held.range` of a block in the type of the buffer.
void write(Executor &executor, const PlacedParameter &placed, const pb::Buffer &buffer, pb::DataType type,
           const HeldElements &held, const std::vector<float> &values) {
  auto size = static_cast<int64_t>(elementBytes(type)), count = held.range.end - held.range.begin;
  std::vector<std::byte> stored(count * size);
  for (int64_t i = 0; i < count; ++i)
    storeElement(type, stored.data(), i, values[held.range.begin + i]);
  executor.device().copyIn(executor.address(placed.call, buffer) + held.at * size, stored.data(), stored.size());
}

} // namespace

void initializeParameters(const Program &program, Executor &executor, ThreadPool &pool,
                          const std::set<std::string> *only) {
  for (const PlacedParameter &placed : placedParameters(program.plan(), program.mesh(), executor.rankProgram().rank)) {
    if (only && !only->contains(placed.name))
      continue;
    std::vector<float> values = blockValues(program.plan(), placed, pool);
    const pb::Bucket &bucket = *placed.bucket;
    write(executor, placed, bucket.stored(), bucket.type(), placed.heldStored(), values);
    if (hasMaster(bucket))
      write(executor, placed, bucket.state(0), pb::F32, placed.own, values);
  }
}

} // namespace espalier::rt
