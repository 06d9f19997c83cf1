// The loop of one rank. Rank 0 reports.
#include "runtime/train/trainer.h"

#include "runtime/abi.h"
#include "runtime/train/initialize.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace espalier::rt {

Trainer::Trainer(RunContext &context, Executor &executor, ThreadPool &pool)
    : context(context), executor(executor), pool(pool), settings(context.program.plan().settings()),
      state(initialScalars(settings)),
      trainingBatches(context.program.plan(), context.program.mesh(), executor.rankProgram().rank, context.training,
                      context.options.order),
      divergenceRule(settings) {
  if (context.heldOut)
    heldOutBatches.emplace(context.program.plan(), context.program.mesh(), executor.rankProgram().rank,
                           *context.heldOut, SampleOrder::single);
}

void Trainer::run() {
  const RunOptions &options = context.options;
  if (options.resume)
    state = context.checkpoints->load(executor);
  else
    initializeParameters(context.program, executor, pool);
  firstStep = state.step;
  // A signal that came while ranks loaded ends the run here.
  beforeAgreement();
  executor.barrier();
  while (!isStopped() && divergence.empty() && state.step < options.steps) {
    trainStep();
    if (heldOutBatches && !isStopped() && divergence.empty() && state.step % options.evalEvery == 0)
      evaluate();
    if (divergence.empty())
      saveIfDue();
  }
  endRun();
}

void Trainer::beforeAgreement() {
  ++meeting;
  if (isLeader() && context.options.stopSignal && context.options.stopSignal() != 0)
    context.stop.proclaim(meeting);
}

void Trainer::trainStep() {
  auto begin = std::chrono::steady_clock::now();
  executor.setScalars(beginStep(settings, state, context.options.steps));
  executor.runStep(state.step, *this);
  StepOutcome outcome = endStep(settings, executor.scalars(), state);
  divergence = divergenceRule.judge(outcome, state);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (context.options.keepParameters)
    context.gatherer.addParameters(executor, state.step - 1 - firstStep);
  if (context.options.inspect)
    context.options.inspect(executor);
  if (!isLeader())
    return;
  context.result.steps.push_back(record(outcome, seconds.count()));
  context.metrics.add(context.result.steps.back());
}

/// A checkpoint waits while steps are skipped: whether the weights are of use shows in the next step that is applied.
/// No checkpoint is made of weights that give no finite loss, so that it cannot take the place of a good one.
void Trainer::saveIfDue() {
  const RunOptions &options = context.options;
  if (!context.checkpoints)
    return;
  bool isLast = isStopped() || state.step == options.steps;
  isSaveDue |= options.saveEvery > 0 && state.step % options.saveEvery == 0;
  if (!isLast && (!isSaveDue || divergenceRule.skipped() > 0))
    return;
  isSaveDue = false;
  // The first micro-batch of the step that has just been trained.
  Loss loss = evaluateBatches(trainingBatches, state.consumed - static_cast<int64_t>(settings.global_batch()), 1);
  if (!std::isfinite(loss.sum)) {
    divergence = fmt::format("the weights after step {} give a loss that is not finite", state.step);
    return;
  }
  context.checkpoints->save(executor, state, isLast);
}

void Trainer::endRun() {
  if (!isLeader())
    return;
  context.result.divergence = divergence;
  if (isStopped())
    context.result.stopSignal = context.options.stopSignal();
}

StepRecord Trainer::record(const StepOutcome &outcome, double seconds) const {
  StepRecord record;
  record.step = state.step;
  record.loss = outcome.loss;
  record.gradNorm = outcome.gradNorm;
  record.learningRate = outcome.learningRate;
  record.seconds = seconds;
  record.tokensPerSecond = settings.global_batch() * settings.sequence() / seconds;
  if (context.peakFlops > 0)
    record.mfu = settings.flops_per_step() / seconds / context.peakFlops;
  record.lossScale = state.lossScale;
  record.labels = outcome.tokens;
  record.isApplied = outcome.isApplied;
  for (const pb::Stage &stage : context.program.plan().stages())
    record.peakBytes = std::max<uint64_t>(record.peakBytes, stage.arena_bytes());
  record.peakBytes = std::max(record.peakBytes, executor.device().allocatedBytes());
  return record;
}

void Trainer::loadInputs(uint32_t microBatch, std::byte *inputs) {
  if (evaluated)
    evaluated->load(evaluationStart, evaluationBatch, inputs);
  else
    trainingBatches.load(state.consumed, microBatch, inputs);
}

void Trainer::updateScalars(Scalars &scalars) {
  rt::updateScalars(settings, scalars);
  if (context.options.keepGradients)
    context.gatherer.addGradients(executor, state.step - firstStep);
}

Trainer::Loss Trainer::evaluateBatches(BatchLoader &from, int64_t consumed, int64_t batches) {
  evaluated = &from;
  evaluationStart = consumed;
  // Each evaluation is the first micro-batch of its own: a plan may store its sums instead of adding them.
  Scalars cleared{};
  cleared[LossScale] = 1;
  Loss loss;
  for (evaluationBatch = 0; evaluationBatch < batches; ++evaluationBatch) {
    executor.setScalars(cleared);
    executor.runEvaluation(state.step, *this);
    Scalars scalars = executor.scalars();
    loss.sum += scalars[LossSum];
    loss.tokens += scalars[TokenCount];
  }
  evaluated = nullptr;
  Scalars sums = cleared;
  sums[LossSum] = static_cast<float>(loss.sum);
  sums[TokenCount] = static_cast<float>(loss.tokens);
  executor.setScalars(sums);
  beforeAgreement();
  executor.sumScalars();
  sums = executor.scalars();
  return {sums[LossSum], sums[TokenCount]};
}

void Trainer::evaluate() {
  Loss loss = evaluateBatches(*heldOutBatches, 0, context.options.evalBatches);
  if (!isLeader())
    return;
  double mean = loss.tokens > 0 ? loss.sum / loss.tokens : std::nan("");
  context.result.evaluations.push_back({state.step, mean, loss.tokens});
  context.metrics.add(context.result.evaluations.back());
}

} // namespace espalier::rt
