// The loop of one rank. Rank 0 reports.
#include "runtime/train/trainer.h"

#include "runtime/abi.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/train/initialize.h"

#include <algorithm>

namespace espalier::rt {

Trainer::Trainer(RunContext &context, Executor &executor, ThreadPool &pool)
    : context(context), executor(executor), pool(pool), settings(context.program.plan().settings()),
      state(initialScalars(settings)),
      trainingBatches(context.program.plan(), context.program.mesh(), executor.rankProgram().rank, context.training,
                      context.options.order) {
  if (context.heldOut)
    heldOutBatches.emplace(context.program.plan(), context.program.mesh(), executor.rankProgram().rank,
                           *context.heldOut, SampleOrder::single);
}

void Trainer::run() {
  const RunOptions &options = context.options;
  if (options.resume)
    state = loadCheckpoint(options.checkpoint, context.program, executor);
  else
    initializeParameters(context.program, executor, pool);
  firstStep = state.step;
  while (state.step < options.steps) {
    trainStep();
    if (heldOutBatches && state.step % options.evalEvery == 0)
      evaluate();
    bool isLast = state.step == options.steps;
    bool isDue = options.saveEvery > 0 && state.step % options.saveEvery == 0;
    if (!options.checkpoint.empty() && (isDue || isLast))
      saveCheckpoint(options.checkpoint, context.program, executor, state);
  }
}

void Trainer::trainStep() {
  auto begin = std::chrono::steady_clock::now();
  executor.setScalars(beginStep(settings, state, context.options.steps));
  executor.runStep(state.step, *this);
  StepOutcome outcome = endStep(settings, executor.scalars(), state);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (context.options.keepParameters)
    context.gatherer.addParameters(executor, state.step - 1 - firstStep);
  if (context.options.inspect)
    context.options.inspect(executor);
  if (executor.rankProgram().rank != 0)
    return;
  context.result.steps.push_back(record(outcome, seconds.count()));
  context.metrics.add(context.result.steps.back());
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
  record.isApplied = outcome.isApplied;
  for (const pb::Stage &stage : context.program.plan().stages())
    record.peakBytes = std::max<uint64_t>(record.peakBytes, stage.arena_bytes());
  record.peakBytes = std::max(record.peakBytes, executor.device().allocatedBytes());
  return record;
}

void Trainer::loadInputs(uint32_t microBatch, std::byte *inputs) {
  if (isEvaluating)
    heldOutBatches->load(0, evaluationBatch, inputs);
  else
    trainingBatches.load(state.consumed, microBatch, inputs);
}

void Trainer::updateScalars(Scalars &scalars) {
  rt::updateScalars(settings, scalars);
  if (context.options.keepGradients)
    context.gatherer.addGradients(executor, state.step - firstStep);
}

void Trainer::evaluate() {
  isEvaluating = true;
  // Each evaluation is the first micro-batch of its own: a plan may store its sums instead of adding them.
  Scalars cleared{};
  cleared[LossScale] = 1;
  double loss = 0, count = 0;
  for (evaluationBatch = 0; evaluationBatch < context.options.evalBatches; ++evaluationBatch) {
    executor.setScalars(cleared);
    executor.runEvaluation(state.step, *this);
    Scalars scalars = executor.scalars();
    loss += scalars[LossSum];
    count += scalars[TokenCount];
  }
  Scalars sums = cleared;
  sums[LossSum] = static_cast<float>(loss);
  sums[TokenCount] = static_cast<float>(count);
  executor.setScalars(sums);
  executor.sumScalars();
  sums = executor.scalars();
  isEvaluating = false;
  if (executor.rankProgram().rank != 0)
    return;
  double tokens = sums[TokenCount];
  context.result.evaluations.push_back({state.step, sums[LossSum] / std::max(1.0, tokens), tokens});
  context.metrics.add(context.result.evaluations.back());
}

} // namespace espalier::rt
