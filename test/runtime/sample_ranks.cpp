#include "test/runtime/sample_ranks.h"

#include "runtime/comm/local.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace espalier::rt {
namespace {

/// Returns element h of a call: 1 plus a hash of (call, h) of at most 0.1. All ranks with this element get the same
/// value.
float initial(int layer, uint64_t element, const std::string &name) {
  uint64_t hash = (layer * 1009 + element * 31 + name.size()) % 97;
  return 1 + static_cast<float>(hash) / 970;
}

void initialize(Executor &executor, const Program &program) {
  const pb::Stage &stage = program.plan().stages(executor.rankProgram().stage);
  int rank = executor.rankProgram().rank;
  for (int call = 0; call < stage.calls_size(); ++call)
    for (const pb::BucketUse &use : stage.calls(call).buckets()) {
      const pb::Bucket &bucket = program.plan().buckets(use.bucket());
      for (const pb::Parameter &parameter : bucket.parameters()) {
        uint64_t local = parameter.shape(0) / program.mesh().count(parameter.split(0));
        uint64_t first = program.mesh().index(rank, parameter.split(0)) * local;
        std::vector<float> values(local);
        for (uint64_t i = 0; i < local; ++i)
          values[i] = initial(use.owner(), first + i, parameter.name());
        uint64_t place = executor.address(call, bucket.stored()) + parameter.first() * 4;
        executor.device().copyIn(place, values.data(), local * 4);
      }
    }
}

std::vector<float> parametersOf(Executor &executor, const Program &program) {
  std::vector<float> all;
  const pb::Stage &stage = program.plan().stages(executor.rankProgram().stage);
  for (int call = 0; call < stage.calls_size(); ++call)
    for (const pb::BucketUse &use : stage.calls(call).buckets()) {
      const pb::Bucket &bucket = program.plan().buckets(use.bucket());
      size_t before = all.size();
      all.resize(before + bucket.elements());
      executor.device().copyOut(all.data() + before, executor.address(call, bucket.stored()), bucket.elements() * 4);
    }
  return all;
}

void runRank(Executor &executor, const Program &program, int steps, RanksResult &result) {
  int rank = executor.rankProgram().rank;
  const pb::Stage &stage = program.plan().stages(executor.rankProgram().stage);
  initialize(executor, program);
  executor.barrier();
  for (int step = 0; step <= steps; ++step) {
    uint32_t entry = *findEntry(program.plan(), step < steps ? "train_step" : "evaluate");
    executor.step = step;
    fillExchanges(executor, program, step, program.plan().entries(entry).micro_batches());
    executor.run(entry);
    if (rank == 0)
      std::memcpy(result.results[step].data(), executor.exchange(*findExchange(stage, "results")).data(),
                  sizeof(Scalars));
  }
  result.parameters[rank] = parametersOf(executor, program);
}

} // namespace

void fillExchanges(Executor &executor, const Program &program, int step, uint32_t microBatches) {
  const pb::Stage &stage = program.plan().stages(executor.rankProgram().stage);
  int replica = dataReplica(program.mesh(), executor.rankProgram().rank);
  for (const char *name : {"tokens", "labels"})
    if (auto exchange = findExchange(stage, name))
      for (uint32_t m = 0; m < microBatches; ++m) {
        std::span<std::byte> bytes = executor.exchange(*exchange, m);
        auto *tokens = reinterpret_cast<int32_t *>(bytes.data());
        uint32_t sample = (step * microBatches + m) * dataReplicas(program.mesh()) + replica;
        for (size_t i = 0; i < bytes.size() / 4; ++i)
          tokens[i] = static_cast<int32_t>((sample * 7919 + i * 104729 + (*name == 'l')) % 256);
      }
  Scalars scalars{};
  scalars[LossScale] = scalars[BiasCorrection1] = scalars[BiasCorrection2] = 1;
  scalars[LearningRate] = 0.01f;
  std::memcpy(executor.exchange(*findExchange(stage, "scalars")).data(), scalars.data(), sizeof scalars);
}

RanksResult runRanks(const Program &program, int steps, const WrapDevice &wrap,
                     const std::function<void(Executor &)> &prepare) {
  int ranks = program.mesh().ranks();
  LocalWorld world(ranks);
  RanksResult result;
  result.results.resize(steps + 1);
  result.parameters.resize(ranks);
  std::vector<std::optional<Failure>> failures(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<Communicator> communicator = world.communicator(rank);
      ThreadPool pool(1, 0);
      std::unique_ptr<Device> device =
          program.backend().open(program.plan().stages(program.mesh().stage(rank)), {*communicator, pool, 10});
      if (wrap)
        device = wrap(std::move(device), rank);
      Executor executor(program, rank, *device);
      if (prepare)
        prepare(executor);
      try {
        runRank(executor, program, steps, result);
      } catch (const RankStopped &) {
      } catch (const std::exception &error) {
        failures[rank] = executor.describe(error.what());
        communicator->abort(*failures[rank]);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::optional<Failure> &failure : failures)
    if (failure)
      throw RankFailure(*failure);
  return result;
}

} // namespace espalier::rt
