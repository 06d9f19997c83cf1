#include "runtime/run/prepared_run.h"

#include "runtime/memory_check.h"
#include "runtime/run/kept_of_run.h"
#include "runtime/run/rank.h"
#include "runtime/run/summary.h"
#include "runtime/train/batch_ramp.h"
#include "runtime/train/learning_rate.h"
#include "runtime/train/machine_peak.h"

#include <algorithm>
#include <fmt/format.h>
#include <thread>

namespace espalier::rt {
namespace {

/// The largest number of step records for which memory is reserved before the first step.
constexpr int64_t maxReserved = 1 << 16;

int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// Returns the number of samples that training reads. If the plan has a number of steps, that number counts, so that a
/// run resumed with more steps uses the same blend.
int64_t trainingSamples(const pb::Settings &settings, const RunOptions &options) {
  int64_t planned = settings.learning_rate().total_steps();
  return samplesOf(settings, planned > 0 ? planned : options.steps);
}

/// Returns the number of samples of one evaluation over all replicas, or 0 for all samples.
int64_t evaluationSamples(const Program &program, const RunOptions &options) {
  auto microBatch = static_cast<int64_t>(program.plan().settings().micro_batch_size());
  int64_t otherwise = isForEvaluation(program.plan().settings()) ? 0 : evaluationBatches;
  return options.evalBatches.value_or(otherwise) * microBatch * dataReplicas(program.mesh());
}

/// Returns whether other processes have ranks of the run and have opened their own inputs.
bool hasPeers(const RunOptions &options) {
  bool isOneOfMany = options.topology && options.topology->isProcessPerRank();
  return options.comm == Comm::mpi || options.comm == Comm::hosts || isOneOfMany;
}

/// Returns a text that identifies the training data, for checkpoints and for other processes.
std::string textOfData(const pb::Plan &plan, const RunOptions &options) {
  if (options.dataset)
    return fmt::format("{} samples in memory", options.dataset->sampleCount());
  bool evaluates = isForEvaluation(plan.settings());
  bool isSaved = !evaluates && (!options.checkpoint.empty() || plan.settings().resume_training());
  bool isOpened = !evaluates || !options.heldOut;
  return isSaved || (hasPeers(options) && isOpened) ? describeTrainingData(plan, options.data, options.order) : "";
}

std::shared_ptr<const Dataset> openHeldOut(const Program &program, const RunOptions &options);

/// Opens the training data, or the evaluation data if the plan only evaluates.
std::shared_ptr<const Dataset> openTraining(const Program &program, const RunOptions &options) {
  bool isPacked = program.plan().settings().data().pack_balanced();
  if (isPacked && options.dataset)
    throw PlanError("`pack: balanced` packs documents of a file, and the samples are in memory; compile with "
                    "`pack: concatenated`");
  if (isPacked && options.order == SampleOrder::cyclic)
    throw PlanError("`pack: balanced` fixes the order of the samples; leave --dataloader-type cyclic out");
  if (options.dataset)
    return options.dataset;
  if (isForEvaluation(program.plan().settings()))
    return openHeldOut(program, options);
  return options.opened ? options.opened : openTrainingSamples(program.plan(), options);
}

/// Opens the evaluation data. Returns null if the run does not evaluate.
std::shared_ptr<const Dataset> openHeldOut(const Program &program, const RunOptions &options) {
  bool isAsked = options.evalEvery > 0 || isForEvaluation(program.plan().settings());
  if (!isAsked || options.heldOut || options.dataset)
    return isAsked ? options.heldOut : nullptr;
  return openRunData(program.plan(), options.data, options.evalSplit, evaluationSamples(program, options));
}

std::unique_ptr<Checkpoints> openCheckpoints(const Program &program, const RunOptions &options,
                                             const std::string &token, const std::string &data) {
  if (options.resume && options.checkpoint.empty())
    throw PlanError("resuming needs the folder of the checkpoints; give --checkpoint DIR");
  std::unique_ptr<Checkpoints> checkpoints;
  if (!options.checkpoint.empty() && !isForEvaluation(program.plan().settings()))
    checkpoints = std::make_unique<Checkpoints>(
        CheckpointOptions{options.checkpoint, options.resume, options.acceptChanges, options.keep, options.steps,
                          options.saveEvery, options.maxUnsaved, token, keptOfRun(program.plan(), options),
                          options.nonFinite},
        program, data);
  return checkpoints;
}

/// Opens the weights that the plan or the command line names. Returns null if the run starts from initial values or
/// resumes its own checkpoint.
std::unique_ptr<StartingWeights> openStart(const Program &program, const RunOptions &options, const std::string &token,
                                           const std::string &data) {
  const pb::Settings &settings = program.plan().settings();
  bool evaluates = isForEvaluation(settings);
  if (options.resume && !evaluates)
    return nullptr;
  std::filesystem::path from = !options.load.empty() ? options.load : std::filesystem::path(settings.load_checkpoint());
  if (evaluates && !options.checkpoint.empty())
    from = options.checkpoint;
  if (from.empty() && !evaluates)
    return nullptr;
  if (from.empty())
    throw PlanError(
        "an evaluation needs weights; give --checkpoint DIR or --load FOLDER, or load_checkpoint in the run "
        "file");
  if (!settings.resume_training() || evaluates)
    return std::make_unique<StartingWeights>(program, from, options.nonFinite);
  Continuation run{fingerprintOf(program.plan(), data), options.steps, options.acceptChanges, token.empty()};
  return std::make_unique<StartingWeights>(program, from, options.nonFinite, run);
}

/// Returns the number of threads of this host that compute at the same time.
int busyThreads(int threads, const ProcessPlace &place) { return std::min(cores(), place.hostRanks * threads); }

/// Returns the number of hosts, if each has as many ranks as this one.
double hostsOf(const Program &program, const ProcessPlace &place) {
  return static_cast<double>(program.mesh().ranks()) / place.hostRanks;
}

/// Returns the peak FLOP/s of all ranks, which assumes that other hosts are as fast as this one. Returns 0 if the peak
/// is unknown or not needed.
double peakFlops(const Program &program, int threads, const ProcessPlace &place) {
  if (!place.token.empty() || program.plan().target() != "cpu" || program.plan().settings().flops_per_step() <= 0)
    return 0;
  return hostsOf(program, place) * machinePeakFlops(busyThreads(threads, place), productType(program.plan()));
}

/// Returns the options for this process. A process without rank 0 writes no log and no metrics.
RunOptions optionsAt(const ProcessPlace &place, const RunOptions &wanted) {
  RunOptions options = wanted;
  if (place.hasFirst)
    return options;
  options.metrics.clear();
  options.tensorboard.clear();
  options.prometheus.clear();
  options.log = false;
  return options;
}

/// Returns how this host can write the checkpoints before the last step. Throws MemoryError if the options ask for a
/// copy that does not fit.
SaveChoice chooseSave(const Program &program, const RunOptions &options, const ProcessPlace &place,
                      const FreeMemory &free) {
  if (!savesBeforeTheEnd(options))
    return {};
  if (options.save == SaveMode::sync)
    return {SaveMode::sync, ""};
  if (place.isMemoryChecked)
    return {};
  std::vector<uint64_t> copies = savedBytes(program);
  std::ranges::sort(copies, std::greater());
  uint64_t copy = 0, plan = neededMemory(program, threadsPerRank(options.threads, place.hostRanks), place.hostRanks);
  for (size_t i = 0; i < std::min<size_t>(copies.size(), place.hostRanks); ++i)
    copy += copies[i];
  if (plan + copy <= free.bytes)
    return {};
  std::string reason =
      fmt::format("the copy of the state needs {} of memory beside the {} of the plan, {} are free ({})",
                  gigabytes(copy), gigabytes(plan), gigabytes(free.bytes), free.source);
  if (options.save == SaveMode::background)
    throw MemoryError(fmt::format("--save background: {}; give --save sync, which needs no copy", reason));
  return {SaveMode::sync, reason};
}

} // namespace

std::shared_ptr<const Dataset> openTrainingSamples(const pb::Plan &plan, const RunOptions &options) {
  return openRunData(plan, options.data, Split::train, trainingSamples(plan.settings(), options));
}

RunData openData(const Program &program, const RunOptions &options, const ProcessPlace &place) {
  if (!isForEvaluation(program.plan().settings()))
    requireLearning(program.plan().settings(), options.steps);
  FreeMemory free = freeMemory();
  if (!place.isMemoryChecked)
    requireMemory(program, threadsPerRank(options.threads, place.hostRanks), free, place.hostRanks);
  SaveChoice saves = chooseSave(program, options, place, free);
  RunData data{openTraining(program, options), nullptr, saves};
  bool isOne = isForEvaluation(program.plan().settings()) && !options.heldOut;
  data.heldOut = isOne ? data.training : openHeldOut(program, options);
  return data;
}

PreparedRun::PreparedRun(const Program &program, const RunOptions &wanted, const ProcessPlace &place,
                         const std::optional<RunData> &opened)
    : options(optionsAt(place, wanted)), threads(threadsPerRank(wanted.threads, place.hostRanks)),
      spins(spinsFor(place.hostRanks * threads)), peakThreads(busyThreads(threads, place)),
      hosts(hostsOf(program, place)), data(opened ? *opened : openData(program, wanted, place)),
      dataText(textOfData(program.plan(), wanted)), start(openStart(program, wanted, place.token, dataText)),
      checkpoints(openCheckpoints(program, wanted, place.token, dataText)),
      context{program,           options, *data.training,    data.heldOut.get(), 0, Metrics(options),
              Gatherer(program), {},      checkpoints.get(), start.get(),        {}} {
  if (options.keepSteps)
    context.result.steps.reserve(std::clamp<int64_t>(options.steps, 0, maxReserved));
  context.peakFlops = peakFlops(program, threads, place);
  context.saveChoice = data.saves;
  if (!hasPeers(wanted))
    return;
  std::string indexes = wanted.dataset || dataText.empty() ? "" : describeIndexes(program.plan(), wanted.data);
  context.statement =
      statementOf(program, wanted, {dataText + indexes, data.training.get(), data.heldOut.get(), start.get()});
}

void PreparedRun::close() {
  if (context.loadFault.empty())
    context.metrics.close(closingSummary(context.result, options));
  if (context.reachedFlops > context.peakFlops)
    correctPeak(peakThreads, productType(context.program.plan()), context.reachedFlops / hosts);
}

RunResult PreparedRun::finish(const std::optional<RankFailure> &failure) {
  if (!context.loadFault.empty())
    throw PlanError(context.loadFault);
  if (failure)
    throw *failure;
  close();
  if (!context.metrics.fault().empty())
    throw std::runtime_error(fmt::format("the metrics are not complete: {}", context.metrics.fault()));
  context.result.gradients = std::move(context.gatherer.gradients);
  context.result.parameters = std::move(context.gatherer.parameters);
  return std::move(context.result);
}

} // namespace espalier::rt
