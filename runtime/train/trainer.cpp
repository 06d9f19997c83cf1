// The training loop of one rank. Rank 0 reports.
#include "runtime/train/trainer.h"

#include "format/abi.h"
#include "runtime/host_name.h"
#include "runtime/status.h"
#include "runtime/train/initialize.h"
#include "runtime/train/rank_requests.h"
#include "runtime/train/write_trace.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <utility>

namespace espalier::rt {

Trainer::Trainer(RunContext &context, Executor &executor, Agreement &agreement, ThreadPool &pool)
    : context(context), executor(executor), agreement(agreement), pool(pool),
      settings(context.program.plan().settings()), state(initialScalars(settings)),
      trainingBatches(context.program.plan(), context.program.mesh(), executor.rankProgram().rank, context.training,
                      context.options.order),
      evaluateEntry(entryNamed("evaluate")),
      trainEntry(isForEvaluation(settings) ? evaluateEntry : entryNamed("train_step")),
      scalarsExchange(exchangeNamed("scalars")), resultsExchange(exchangeNamed("results")), divergenceRule(settings) {
  if (context.heldOut)
    heldOutBatches.emplace(context.program.plan(), context.program.mesh(), executor.rankProgram().rank,
                           *context.heldOut, SampleOrder::single, context.heldOut->sampleCount());
}

Trainer::EntryPlace Trainer::entryNamed(const char *name) const {
  const pb::Plan &plan = context.program.plan();
  std::optional<uint32_t> entry = findEntry(plan, name);
  if (!entry)
    throw PlanError(fmt::format("the plan has no entry '{}': it is not a plan for training", name));
  return {*entry, plan.entries(*entry).micro_batches()};
}

uint32_t Trainer::exchangeNamed(const char *name) const {
  return *findExchange(context.program.plan().stages(executor.rankProgram().stage),
                       name); // rule A guarantees that each stage has it
}

bool Trainer::begin() {
  if (!context.start && !context.options.resume) {
    initializeParameters(context.program, executor, pool);
    return true;
  }
  std::string fault;
  auto started = std::chrono::steady_clock::now();
  if (context.start) {
    try {
      initializeParameters(context.program, executor, pool, &context.start->missing());
      context.start->load(executor, pool);
    } catch (const PlanError &error) {
      fault = error.what();
    }
    fault = agreement.first(fault);
    state = context.start->state();
  } else if (std::optional<ScalarState> loaded = context.checkpoints->load(executor, agreement, pool)) {
    state = *loaded;
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
    if (isLeader())
      context.metrics.say(
          loadedLine(context.checkpoints->lastGoodFolder(), checkpointBytes(context.program), taken.count()));
  } else {
    fault = context.checkpoints->loadFault();
  }
  if (!fault.empty() && agreement.isFirstHere())
    context.loadFault = fault;
  return fault.empty();
}

void Trainer::run() {
  if (!begin())
    return;
  // A signal that arrived while ranks loaded their weights ends the run here.
  isStopped = !agreement.first(signalHere() != 0 ? "stop" : "").empty();
  if (!isForEvaluation(settings))
    train();
  else if (!isStopped)
    evaluate(context.start->trainedSteps(), context.options.evalBatches.value_or(wholeBatches()));
  endRun();
}

void Trainer::train() {
  const RunOptions &options = context.options;
  firstStep = state.step;
  prepareSaves();
  if (isLeader() && options.resume)
    context.metrics.continueAfter(firstStep);
  if (isLeader())
    context.metrics.addRestarts(firstStep);
  beginComparison();
  beginCounters();
  do {
    while (!isStopped && divergence.empty() && state.step < options.steps) {
      trainStep();
      compareIfDue();
      if (heldOutBatches && !isStopped && divergence.empty() && state.step % options.evalEvery == 0)
        evaluate(state.step, options.evalBatches.value_or(evaluationBatches));
      if (divergence.empty())
        saveIfDue();
    }
    finishSave();
  } while (!divergence.empty() && rollBack());
  if (!isStopped && divergence.empty())
    divergence = divergenceRule.judgeEnd(state);
}

bool Trainer::rollBack() {
  const RunOptions &options = context.options;
  if (isStopped || options.onDivergence == OnDivergence::stop || !context.checkpoints)
    return false;
  if (rollbacks == options.maxRollbacks) {
    divergence += fmt::format("; no rollback is left of the {} that --max-rollbacks allows", rollbacks);
    return false;
  }
  std::string fault;
  std::optional<ScalarState> good = context.checkpoints->loadLastGood(executor, agreement, pool, fault);
  if (!good) {
    divergence += "; no rollback is possible: " + fault;
    return false;
  }
  RollbackRecord record{state.step,  good->step,           state.consumed - good->consumed,
                        ++rollbacks, options.maxRollbacks, std::exchange(divergence, "")};
  int64_t consumed = state.consumed;
  state = *good;
  state.consumed = consumed;
  divergenceRule.restart();
  isSaveDue = false;
  if (isLeader()) {
    context.result.rollbacks.push_back(record);
    context.metrics.add(record);
  }
  return true;
}

/// Ranks that share cores slow each other down, so that they are compared on request alone.
void Trainer::beginComparison() {
  constexpr int64_t usual = 20;
  const Mesh &mesh = context.program.mesh();
  bool hasPeers = mesh.ranks() > static_cast<int>(context.program.plan().stages_size());
  windowSteps = context.options.compareEvery.value_or(usual);
  if (windowSteps == 0 || !hasPeers || !executor.device().isSynchronous())
    return;
  // Hosts may have different numbers of cores for each rank, and either all ranks compare or none.
  bool hasDefault = !context.options.compareEvery;
  if (hasDefault && !agreement.first(pool.hasOwnCores() ? "" : "shares cores").empty())
    return;
  hosts = agreement.tell(hostName());
  std::vector<RankSite> sites;
  for (int rank = 0; rank < mesh.ranks(); ++rank)
    sites.push_back({mesh.stage(rank), hosts[static_cast<size_t>(rank)]});
  slowRanks.emplace(std::move(sites));
  executor.computeSeconds = 0;
}

/// Rank 0 chooses the interval, because only its process must know the options of the log.
void Trainer::beginCounters() {
  constexpr int64_t usual = 10;
  expertCounters.emplace(context.program, executor);
  if (expertCounters->isEmpty())
    expertCounters.reset();
  scoreCounters.emplace(context.program, executor);
  if (scoreCounters->isEmpty())
    scoreCounters.reset();
  if (!expertCounters && !scoreCounters)
    return;
  std::string mine = isLeader() ? std::to_string(context.options.logEvery.value_or(usual)) : "";
  countSteps = std::stoll(agreement.first(mine));
}

void Trainer::countIfDue(StepRecord &record) {
  ++countedSteps;
  bool isLast = isStopped || state.step == context.options.steps;
  if (countSteps == 0 || (state.step % countSteps != 0 && !isLast))
    return;
  if (expertCounters)
    record.experts = {countedSteps, expertCounters->take(agreement)};
  if (scoreCounters)
    record.attentionScores = scoreCounters->take(agreement);
  countedSteps = 0;
}

void Trainer::compareIfDue() {
  if (!slowRanks || (state.step - firstStep) % windowSteps != 0)
    return;
  double mine = std::exchange(executor.computeSeconds, 0) / static_cast<double>(windowSteps);
  std::vector<double> seconds;
  for (const std::string &told : agreement.tell(fmt::format("{}", mine)))
    seconds.push_back(std::stod(told));
  slowRanks->add(seconds);
  std::vector<SlowAtEnd> slowest;
  for (const SlowRank &rank : slowRanks->slow())
    slowest.push_back({rank.rank, rank.ratio});
  executor.showSlow(slowest);
  if (!isLeader())
    return;
  auto hostOf = [&](int rank) { return hosts[static_cast<size_t>(rank)]; };
  for (const SlowRank &rank : slowRanks->news())
    context.metrics.say(describeSlow(rank, hostOf(rank.rank), windowSteps));
  for (int rank : slowRanks->recovered())
    context.metrics.say(fmt::format("rank {} on {} is no longer slow", rank, hostOf(rank)));
  if (slowRanks->news().empty() && slowRanks->recovered().empty())
    return;
  SlowRecord record{state.step, windowSteps, slowRanks->slow(), {}};
  for (const SlowRank &rank : record.ranks)
    record.hosts.push_back(hostOf(rank.rank));
  context.metrics.add(record);
}

int Trainer::signalHere() const {
  return agreement.isFirstHere() && context.options.stopSignal ? context.options.stopSignal() : 0;
}

/// Runs an entry. All ranks sum their scalars in every entry, so every rank learns afterwards that some rank received a
/// signal, or that none was writing a checkpoint.
Scalars Trainer::runEntry(const EntryPlace &entry, Scalars scalars, BatchLoader &from, int64_t consumed,
                          int64_t first) {
  for (uint32_t i = 0; i < entry.microBatches; ++i)
    from.load(consumed, first + i, [&](uint32_t exchange) { return executor.exchange(exchange, i).data(); });
  scalars[StopRequests] = RankRequests{signalHere() != 0, saving && saving->isWriting()}.summand();
  std::memcpy(executor.exchange(scalarsExchange, 0).data(), scalars.data(), sizeof scalars);
  executor.run(entry.number);
  Scalars results;
  std::memcpy(results.data(), executor.exchange(resultsExchange, 0).data(), sizeof results);
  auto [stops, writes] = RankRequests::ofSum(results[StopRequests]);
  isStopped |= stops;
  isAnyWriting = writes;
  return results;
}

void Trainer::trainStep() {
  auto begin = std::chrono::steady_clock::now();
  executor.step = state.step; // until the next step begins; its evaluation and its checkpoint also belong to this step
  executor.trace = context.options.trace.empty() ? nullptr : &recorder;
  batch = batchAfter(settings, state.consumed, trainEntry.number);
  EntryPlace entry{batch.entry, context.program.plan().entries(static_cast<int>(batch.entry)).micro_batches()};
  Scalars results = runEntry(entry, beginStep(settings, state, context.options.steps), trainingBatches, state.consumed);
  executor.trace = nullptr;
  StepOutcome outcome = endStep(settings, results, state, batch.samples);
  divergence = divergenceRule.judge(outcome, state);
  isSaveProven |= std::isfinite(outcome.loss); // NaN without labels; then the weights are still those of the save
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  showStepSeconds(seconds.count());
  StepRecord made = isLeader() ? record(outcome, seconds.count()) : StepRecord();
  countIfDue(made);
  if (context.options.keepGradients)
    context.gatherer.addGradients(executor, results, state.step - 1 - firstStep);
  if (context.options.keepParameters)
    context.gatherer.addParameters(executor, state.step - 1 - firstStep);
  if (context.options.inspect)
    context.options.inspect(executor);
  if (!isLeader())
    return;
  keep(std::move(made));
  context.metrics.add(context.result.steps.back());
  if (context.options.onStep)
    context.options.onStep(context.result.steps.back());
}

void Trainer::keep(StepRecord record) {
  constexpr std::ptrdiff_t mostKept = 1000;
  RunResult &result = context.result;
  ++result.stepCount;
  result.stepSeconds += record.seconds;
  result.isAnyApplied |= record.isApplied;
  result.steps.push_back(std::move(record));
  if (!context.options.keepSteps && std::ssize(result.steps) == 2 * mostKept)
    result.steps.erase(result.steps.begin(), result.steps.begin() + mostKept);
}

void Trainer::showStepSeconds(double seconds) {
  constexpr size_t window = 31;
  if (stepSeconds.size() < window)
    stepSeconds.push_back(seconds);
  else
    stepSeconds[static_cast<size_t>(state.step) % window] = seconds;
  std::vector<double> sorted = stepSeconds;
  auto middle = sorted.begin() + std::ssize(sorted) / 2;
  std::ranges::nth_element(sorted, middle);
  executor.shown().stepSeconds = static_cast<float>(*middle);
}

void Trainer::prepareSaves() {
  if (!context.checkpoints || !savesBeforeTheEnd(context.options))
    return;
  const SaveChoice &own = context.saveChoice;
  std::string said = agreement.first(own.mode == SaveMode::sync ? "sync" + own.reason : "");
  if (said.empty())
    saving.emplace(*context.checkpoints, context.program, executor, agreement);
  else if (std::string reason = said.substr(std::strlen("sync")); isLeader() && !reason.empty())
    fmt::print(stderr, "espalier: note: training waits while checkpoints are written, as with --save sync: {}\n",
               reason);
}

/// Saves a checkpoint if one is due. The save waits while steps are skipped, because only the next applied step shows
/// whether the weights are good. Weights without a finite loss are not saved, so that they do not replace a good
/// checkpoint: a checkpoint that is written while training goes on is complete only after the next step has given a
/// finite loss with its weights.
void Trainer::saveIfDue() {
  const RunOptions &options = context.options;
  if (!context.checkpoints)
    return;
  advanceSave();
  bool isLast = isStopped || state.step == options.steps;
  bool isDueNow = options.saveEvery > 0 && state.step % options.saveEvery == 0;
  std::string waits;
  if (divergenceRule.skipped() > 0)
    waits = "for the next step that is applied";
  else if (saving && saving->isActive())
    waits = fmt::format("until that of step {} is written", saving->step());
  if (isLeader() && isDueNow && !isSaveDue && !waits.empty() && !isLast)
    context.metrics.say(fmt::format("the checkpoint due after step {} waits {}", state.step, waits));
  isSaveDue |= isDueNow;
  if (!isLast && (!isSaveDue || !waits.empty()))
    return;
  isSaveDue = false;
  if (saving && !isLast) {
    saving->begin(state);
    isSaveProven = false;
    return;
  }
  // Evaluates the first micro-batch of the step that has just been trained.
  Loss loss = evaluateBatches(trainingBatches, state.consumed - batch.samples, 1);
  if (!std::isfinite(loss.sum)) {
    divergence = fmt::format("the weights after step {} give a loss that is not finite", state.step);
    return;
  }
  isSaveProven = true; // if no step has done so, no step has changed the weights since
  finishSave();
  report(context.checkpoints->save(executor, agreement, state, isLast));
}

/// The sum of the requests tells who was writing when the step began. At the first step border after a save, one
/// message tells who is writing now, so that a short write is complete a step earlier.
void Trainer::advanceSave() {
  if (!saving || !saving->isActive() || !isSaveProven)
    return;
  saving->prove();
  if (isAnyWriting && state.step == saving->step() + 1)
    isAnyWriting = !agreement.first(saving->isWriting() ? "writing" : "").empty();
  if (!isAnyWriting)
    report(saving->advance());
}

void Trainer::finishSave() {
  if (!saving || !saving->isActive())
    return;
  if (isSaveProven)
    report(saving->finish());
  else
    saving->abandon();
}

void Trainer::report(std::optional<SaveRecord> record) {
  if (!record)
    return;
  record->afterStep = state.step;
  context.result.saves.push_back(*record);
  context.metrics.add(*record);
  if (context.options.onSave)
    context.options.onSave(context.checkpoints->lastGoodFolder());
}

/// Ends the run on all ranks. After the agreement on the signal, no rank can fail any more.
void Trainer::endRun() {
  if (!context.options.trace.empty() && state.step > firstStep)
    writeTrace(context.program, executor.rankProgram().rank, recorder, agreement, context.options.trace);
  int here = isStopped ? signalHere() : 0;
  std::string signal = agreement.first(here != 0 ? std::to_string(here) : "");
  if (isLeader() && context.options.log)
    if (std::string taken = executor.device().describeMemory(); !taken.empty())
      fmt::print("{}\n", taken);
  if (!agreement.isFirstHere())
    return;
  context.result.divergence = divergence;
  if (isStopped)
    context.result.stopSignal = std::stoi(signal);
}

StepRecord Trainer::record(const StepOutcome &outcome, double seconds) {
  StepRecord record;
  record.step = state.step;
  record.loss = outcome.loss;
  record.gradNorm = outcome.gradNorm;
  record.learningRate = outcome.learningRate;
  record.seconds = seconds;
  record.tokensPerSecond = static_cast<double>(batch.samples) * static_cast<double>(settings.sequence()) / seconds;
  if (context.peakFlops > 0) {
    double share = static_cast<double>(batch.samples) / static_cast<double>(settings.global_batch());
    double rate = share * settings.flops_per_step() / seconds;
    record.mfu = rate <= context.peakFlops ? rate / context.peakFlops : 0;
    context.reachedFlops = std::max(context.reachedFlops, rate);
  }
  record.lossScale = state.lossScale;
  record.labels = outcome.tokens;
  record.isApplied = outcome.isApplied;
  record.isSpike = outcome.isSpike;
  record.normLimit = outcome.normLimit;
  record.packing = trainingBatches.describePacking(state.consumed - batch.samples, batch.samples);
  record.batch = settings.batch_ramp_size() > 0 ? batch.samples : 0;
  for (const pb::Stage &stage : context.program.plan().stages())
    record.peakBytes = std::max<uint64_t>(record.peakBytes, stage.arena_bytes(pb::DEVICE));
  record.peakBytes = std::max(record.peakBytes, executor.device().allocatedBytes());
  return record;
}

Trainer::Loss Trainer::evaluateBatches(BatchLoader &from, int64_t consumed, int64_t batches) {
  Loss loss;
  for (int64_t batch = 0; batch < batches; ++batch) {
    Scalars sums = runEntry(evaluateEntry, beginEvaluation(state.step), from, consumed, batch);
    loss.sum += sums[LossSum];
    loss.tokens += sums[TokenCount];
  }
  return loss;
}

/// Returns the number of micro-batches that hold every sample once. If the model can exclude samples from the loss, the
/// last micro-batch is padded with such samples.
int64_t Trainer::wholeBatches() const {
  int64_t samples = context.heldOut->sampleCount();
  int64_t each = static_cast<int64_t>(settings.micro_batch_size()) * dataReplicas(context.program.mesh());
  return heldOutBatches->canLeaveOut() ? (samples + each - 1) / each : std::max<int64_t>(1, samples / each);
}

void Trainer::evaluate(int64_t step, int64_t batches) {
  Loss loss = evaluateBatches(*heldOutBatches, 0, batches);
  if (!isLeader())
    return;
  double mean = loss.tokens > 0 ? loss.sum / loss.tokens : std::nan("");
  context.result.evaluations.push_back({step, mean, loss.tokens});
  context.metrics.add(context.result.evaluations.back());
}

} // namespace espalier::rt
