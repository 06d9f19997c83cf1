// Starts the ranks of a plan as threads and brings them down together.
#include "runtime/train/run.h"

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/local.h"
#include "runtime/memory_check.h"
#include "runtime/train/summary.h"
#include "runtime/train/trainer.h"

#include <fmt/format.h>
#include <latch>
#include <new>
#include <thread>

namespace espalier::rt {
namespace {

/// Polls before a waiting thread sleeps, where every thread has a core of its own.
constexpr int spinsWithOwnCore = 4000;
/// Records of steps that are made room for before the first step.
constexpr int64_t maxReserved = 1 << 16;

/// Samples that training reads: those of the plan's steps where it has a number, so that resuming with more steps finds
/// the same blend.
int64_t trainingSamples(const pb::Settings &settings, const RunOptions &options) {
  int64_t planned = settings.learning_rate().total_steps();
  return (planned > 0 ? planned : options.steps) * static_cast<int64_t>(settings.global_batch());
}

/// Samples of one evaluation over all replicas.
int64_t evaluationSamples(const Program &program, const RunOptions &options) {
  auto microBatch = static_cast<int64_t>(program.plan().settings().micro_batch_size());
  return options.evalBatches * microBatch * dataReplicas(program.mesh());
}

/// What the run trains on, in words.
std::string dataWords(const pb::Plan &plan, const RunOptions &options) {
  if (!options.dataset)
    return describeTrainingData(plan, options.data, options.order);
  return fmt::format("{} samples in memory", options.dataset->sampleCount());
}

/// Stops all ranks for what `rank` has caught; `executor` is null before there is one. Throws nothing, as memory may
/// have run out: the others wait for this word.
void stopAll(LocalWorld &world, int rank, const Executor *executor, const std::exception &error) noexcept {
  Failure failure;
  failure.rank = rank;
  try {
    bool isMemory = dynamic_cast<const std::bad_alloc *>(&error) != nullptr;
    failure.message = isMemory ? "the system refuses more memory" : error.what();
    if (executor)
      failure = executor->describe(failure.message);
  } catch (...) {
    failure.message = "out of memory"; // short enough to need none
  }
  world.abort(std::move(failure));
}

/// Runs one rank to its end or to the first failure of any. Its memory lasts until all ranks have come to `ended`:
/// after a failure others may still move it, until they have seen the stop.
void runRank(RunContext &context, LocalWorld &world, std::latch &ended, int rank, int threads, int spins) {
  std::unique_ptr<Communicator> communicator;
  std::optional<ThreadPool> pool;
  std::unique_ptr<Device> device;
  std::optional<Executor> executor;
  try {
    communicator = world.communicator(rank);
    pool.emplace(threads, spins);
    const pb::Stage &stage = context.program.plan().stages(context.program.mesh().stage(rank));
    device = context.program.backend().open(stage, {*communicator, *pool, spins});
    Agreement agreement(*communicator, rank == 0, spins);
    executor.emplace(context.program, rank, *device);
    executor->fault = context.options.fault;
    Trainer(context, *executor, agreement, *pool).run();
  } catch (const RankStopped &) {
    // The first failure is kept by the rank that had it.
  } catch (const std::exception &error) {
    stopAll(world, rank, executor ? &*executor : nullptr, error);
  }
  ended.arrive_and_wait();
}

/// Runs all ranks to their end. Where one cannot even be started, those that have been are stopped.
void runRanks(RunContext &context, LocalWorld &world, int threads, int spins) {
  int ranks = context.program.mesh().ranks();
  std::latch ended(ranks);
  std::vector<std::jthread> others;
  int started = 1;
  try {
    others.reserve(ranks - 1);
    for (; started < ranks; ++started)
      others.push_back(
          startThread<std::jthread>([&, rank = started] { runRank(context, world, ended, rank, threads, spins); }));
  } catch (const std::exception &error) {
    stopAll(world, started, nullptr, error);
    ended.count_down(ranks - started + 1); // those that were not, and rank 0
    return;
  }
  runRank(context, world, ended, 0, threads, spins);
}

} // namespace

RunResult runPlan(const Program &program, const RunOptions &options) {
  std::shared_ptr<const Dataset> training = options.dataset, heldOut = options.heldOut;
  const pb::Plan &plan = program.plan();
  int ranks = program.mesh().ranks();
  int threads = threadsPerRank(options.threads, ranks);
  requireMemory(program, threads, freeMemory());
  bool opensHeldOut = options.evalEvery > 0 && !heldOut && !training;
  if (!training)
    training = openRunData(plan, options.data, Split::train, trainingSamples(plan.settings(), options));
  if (opensHeldOut)
    heldOut = openRunData(plan, options.data, Split::valid, evaluationSamples(program, options));
  if (options.resume && options.checkpoint.empty())
    throw PlanError("resuming needs the folder of the checkpoints; give --checkpoint DIR");
  std::optional<Checkpoints> checkpoints;
  if (!options.checkpoint.empty())
    checkpoints.emplace(CheckpointOptions{options.checkpoint, options.resume, options.acceptChanges, options.keep,
                                          options.steps, options.saveEvery},
                        program, dataWords(plan, options));
  int cores = std::max(1u, std::thread::hardware_concurrency());
  int spins = ranks * threads <= cores ? spinsWithOwnCore : 0;
  RunContext context{program, options, *training, nullptr, 0, Metrics(options), Gatherer(program), {}};
  context.checkpoints = checkpoints ? &*checkpoints : nullptr;
  context.result.steps.reserve(std::clamp<int64_t>(options.steps, 0, maxReserved));
  if (options.evalEvery > 0)
    context.heldOut = heldOut.get();
  if (program.plan().target() == "cpu" && program.plan().settings().flops_per_step() > 0)
    context.peakFlops = measurePeakFlops(std::min(cores, ranks * threads));
  LocalWorld world(ranks);
  runRanks(context, world, threads, spins);
  if (checkpoints && !checkpoints->loadFault().empty())
    throw PlanError(checkpoints->loadFault());
  if (std::optional<Failure> failure = world.failure())
    throw RankFailure(*failure);
  context.metrics.close(closingSummary(context.result, options));
  if (!context.metrics.fault().empty())
    throw std::runtime_error(fmt::format("the metrics are not complete: {}", context.metrics.fault()));
  context.result.gradients = std::move(context.gatherer.gradients);
  context.result.parameters = std::move(context.gatherer.parameters);
  return std::move(context.result);
}

} // namespace espalier::rt
