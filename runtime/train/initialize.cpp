// Each rank computes the values of a parameter once, in f32. One job of the thread pool computes one chunk of elements.
#include "runtime/train/initialize.h"

#include "runtime/kernels/element.h"
#include "runtime/parameter_block.h"
#include "runtime/train/initial_value.h"

#include <algorithm>
#include <vector>

namespace espalier::rt {
namespace {

constexpr int64_t chunkElements = 1 << 14;
constexpr int64_t runsOfPart = 4;

/// Elements that are contiguous both in the block and in the global tensor.
struct Run {
  int64_t local, global, count;
};

struct Fill {
  uint32_t key;
  pb::Initialization::Kind kind;
  double stddev;
  std::vector<Run> runs; ///< of at most chunkElements
  float *values;
};

/// Fills whole pairs, because both numbers of a pair share a logarithm and a square root. Each clone computes equal
/// bits.
__attribute__((target_clones("avx512f", "avx2", "default"))) void fillPairs(uint32_t key, double stddev, uint64_t pair,
                                                                            int64_t pairs, float *values) {
  for (int64_t i = 0; i < pairs; ++i) {
    NormalPair numbers = initialNormals(key, pair + static_cast<uint64_t>(i));
    values[2 * i] = static_cast<float>(stddev * numbers.even);
    values[2 * i + 1] = static_cast<float>(stddev * numbers.odd);
  }
}

void fillRun(const Fill &fill, Run run) {
  float *values = fill.values + run.local;
  auto fillOne = [&](int64_t i) {
    values[i] = initialValue(fill.key, fill.kind, fill.stddev, static_cast<uint64_t>(run.global + i));
  };
  if (fill.kind != pb::Initialization::NORMAL) {
    for (int64_t i = 0; i < run.count; ++i)
      fillOne(i);
    return;
  }
  int64_t first = std::min(run.count, run.global % 2), pairs = (run.count - first) / 2;
  if (first == 1)
    fillOne(0);
  fillPairs(fill.key, fill.stddev, static_cast<uint64_t>(run.global + first) / 2, pairs, values + first);
  if (first + 2 * pairs < run.count)
    fillOne(run.count - 1);
}

void fillPart(void *context, int64_t part, int) {
  const Fill &fill = *static_cast<const Fill *>(context);
  // Short runs share a part.
  auto count = static_cast<int64_t>(fill.runs.size());
  for (int64_t i = part * runsOfPart, end = std::min(count, i + runsOfPart); i < end; ++i)
    fillRun(fill, fill.runs[static_cast<size_t>(i)]);
}

/// Computes the initial values of a block in f32. Padding is zero.
void fillBlock(const pb::Plan &plan, const PlacedParameter &placed, ThreadPool &pool, std::vector<float> &values) {
  values.assign(static_cast<size_t>(placed.block.elements()), 0.0f);
  const pb::Initialization &initialization = placed.parameter->initialization();
  Fill fill{initialKey(plan.settings().seed(), placed.name),
            initialization.kind(),
            initialization.stddev(),
            {},
            values.data()};
  placed.block.visitRuns([&](int64_t local, int64_t global, int64_t count) {
    for (int64_t done = 0; done < count; done += chunkElements)
      fill.runs.push_back({local + done, global + done, std::min(chunkElements, count - done)});
  });
  pool.run((static_cast<int64_t>(fill.runs.size()) + runsOfPart - 1) / runsOfPart, fillPart, &fill);
}

/// Values to be rounded to the type of a buffer.
struct Rounding {
  pb::DataType type;
  const float *values;
  std::byte *stored;
  int64_t count;
};

void roundPart(void *context, int64_t part, int) {
  const Rounding &rounding = *static_cast<const Rounding *>(context);
  for (int64_t i = part * chunkElements, end = std::min(rounding.count, i + chunkElements); i < end; ++i)
    storeElement(rounding.type, rounding.stored, i, rounding.values[i]);
}

/// Writes initial values to the device. Keeps its host memory between parameters.
class Initializer {
public:
  Initializer(const Program &program, Executor &executor, ThreadPool &pool)
      : program(program), executor(executor), pool(pool) {}

  void initialize(const PlacedParameter &placed) {
    fillBlock(program.plan(), placed, pool, values);
    const pb::Bucket &bucket = *placed.bucket;
    write(placed, bucket.stored(), bucket.type(), placed.heldStored());
    if (hasMaster(bucket))
      write(placed, bucket.state(0), pb::F32, placed.own);
  }

private:
  /// Writes the elements `held.range` of the block in the type of the buffer.
  void write(const PlacedParameter &placed, const pb::Buffer &buffer, pb::DataType type, const HeldElements &held) {
    auto size = static_cast<int64_t>(elementBytes(type)), count = held.range.end - held.range.begin;
    if (held.range.isEmpty())
      return;
    const void *from = values.data() + held.range.begin;
    if (type != pb::F32) {
      stored.resize(static_cast<size_t>(count * size));
      Rounding rounding{type, values.data() + held.range.begin, stored.data(), count};
      pool.run((count + chunkElements - 1) / chunkElements, roundPart, &rounding);
      from = stored.data();
    }
    executor.device().copyIn(executor.address(placed.call, buffer) + held.at * size, from,
                             static_cast<size_t>(count * size));
  }

  const Program &program;
  Executor &executor;
  ThreadPool &pool;
  std::vector<float> values;
  std::vector<std::byte> stored;
};

} // namespace

void initializeParameters(const Program &program, Executor &executor, ThreadPool &pool,
                          const std::set<std::string> *only) {
  Initializer initializer(program, executor, pool);
  for (const PlacedParameter &placed : placedParameters(program.plan(), program.mesh(), executor.rankProgram().rank))
    if (!only || only->contains(placed.name))
      initializer.initialize(placed);
}

} // namespace espalier::rt
