#include "test/equivalence/train_ranks.h"

#include "planner/model/schedule.h"
#include "runtime/kernels/update_scalars.h"
#include "runtime/train/step_scalars.h"
#include "test/equivalence/bucket_collectives.h"
#include "test/equivalence/phase_calls.h"
#include "test/equivalence/rank_layers.h"
#include "test/interpret/run_ranks.h"

#include <algorithm>
#include <cmath>
#include <mutex>

using namespace mlir;

namespace espalier {

namespace {

/// Trains one rank: its actions in the order of the schedule, then the optimizer step.
class RankTrainer {
public:
  /// `context` has the rank's place on the mesh.
  RankTrainer(ModuleOp module, const RunConfig &run, const planner::Plan &plan, const TrainingInputs &inputs, int rank,
              EvalContext &context, std::vector<TrainingStep> &out, std::mutex &mutex)
      : run(run), plan(plan), inputs(inputs), rank(rank), stage(static_cast<int>(context.coordinate("pp"))),
        ranksPerStage(plan.ranks() / plan.pp), context(context), out(out), mutex(mutex), module(module),
        layers(module, run, plan, context), collectives(layers, context),
        calls(module, plan, inputs, context, layers, collectives) {
    context.seed = static_cast<uint32_t>(run.seed);
    context.hasClearedSums = true;
  }

  /// Trains all steps.
  llvm::Error train() {
    auto table = planner::buildSchedule(plan.schedule, plan.pp, plan.microBatches, plan.virtualStages);
    for (int64_t step = 0; step < inputs.steps; ++step) {
      context.step = static_cast<uint32_t>(step);
      calls.statistics.clear();
      calls.counters.clear();
      context.scalars["loss_scale"] = 1;
      layers.clearAccumulators();
      for (const planner::Action &action : table.stages[stage]) {
        context.microBatch = action.microBatch;
        bool isForward = action.kind == planner::ActionKind::Forward,
             waits = action.kind == planner::ActionKind::Weight;
        if (llvm::Error error = isForward ? forward(action) : waits ? weight(action) : backward(action))
          return error;
        bool isLast =
            action.kind == (table.splitsBackward ? planner::ActionKind::Weight : planner::ActionKind::Backward);
        if (isLast)
          if (llvm::Error error = endMicroBatch(action))
            return error;
      }
      if (llvm::Error error = finishStep(step))
        return error;
    }
    return llvm::Error::success();
  }

private:
  /// Returns the index in the model of a chunk of this stage.
  int modelChunk(int chunk) const { return static_cast<int>(planStage(plan, stage, chunk)); }

  int modelChunks() const { return static_cast<int>(plan.stages.size()); }

  /// Returns the rank that holds a chunk of the model and has this rank's coordinates otherwise.
  int rankOf(int modelChunk) const {
    int there = planner::placement(plan).stageOf(modelChunk);
    return rank + (there - stage) * ranksPerStage;
  }

  /// Returns the tag of the stream from chunk `from` of the model to its neighbour `to`.
  static int64_t tagOf(int from, int to, int64_t microBatch) {
    return ((int64_t(from) << 1 | int64_t(to > from)) << 32) + microBatch;
  }

  llvm::Expected<Tensor> receive(int from, int to, int64_t microBatch) {
    return context.rendezvous->receive(rankOf(from), rank, tagOf(from, to, microBatch));
  }

  void send(int from, int to, int64_t microBatch, Tensor value) {
    context.rendezvous->send(rank, rankOf(to), tagOf(from, to, microBatch), std::move(value));
  }

  llvm::Error forward(const planner::Action &action) {
    int here = modelChunk(action.chunk);
    Tensor stream;
    if (here > 0) {
      llvm::Expected<Tensor> received = receive(here - 1, here, action.microBatch);
      if (!received)
        return received.takeError();
      stream = std::move(*received);
    }
    for (LayerState &layer : layers.ofChunk(action.chunk)) {
      layer.saved[action.microBatch]["stream"] = stream;
      if (llvm::Error error = calls.callWhole(layer, layer.call.policy + ".forward", action.microBatch, stream))
        return error;
    }
    if (here + 1 < modelChunks())
      send(here, here + 1, action.microBatch, std::move(stream));
    return llvm::Error::success();
  }

  llvm::Error backward(const planner::Action &action) {
    int here = modelChunk(action.chunk);
    Tensor cotangent;
    if (here + 1 < modelChunks()) {
      llvm::Expected<Tensor> received = receive(here + 1, here, action.microBatch);
      if (!received)
        return received.takeError();
      cotangent = std::move(*received);
    }
    for (LayerState &layer : llvm::reverse(layers.ofChunk(action.chunk)))
      if (llvm::Error error = calls.callWhole(layer, layer.call.policy + ".backward", action.microBatch, cotangent))
        return error;
    if (here > 0)
      send(here, here - 1, action.microBatch, std::move(cotangent));
    return llvm::Error::success();
  }

  /// Computes the delayed weight gradients of the chunk's layers.
  llvm::Error weight(const planner::Action &action) {
    Tensor none;
    for (LayerState &layer : llvm::reverse(layers.ofChunk(action.chunk)))
      if (std::string phase = layer.call.policy + ".weight"; calls.has(layer, phase))
        if (llvm::Error error = calls.callWhole(layer, phase, action.microBatch, none))
          return error;
    return llvm::Error::success();
  }

  /// Frees the saved values of a chunk's layers after their last use. Under ZeRO 2, also adds each rank's shard of the
  /// summed gradient.
  llvm::Error endMicroBatch(const planner::Action &action) {
    Tensor none;
    for (LayerState &layer : layers.ofChunk(action.chunk)) {
      layer.saved.erase(action.microBatch);
      for (exec::BucketOp bucket : layer.segment.buckets())
        if (bucket.getWholeGradientOffset() && !bucket.getTiedHere())
          if (llvm::Error error = collectives.scatter(layer, bucket))
            return error;
      if (calls.has(layer, "add"))
        if (llvm::Error error = calls.call(layer, "add", action.microBatch, none))
          return error;
    }
    return llvm::Error::success();
  }

  llvm::Error runAll(const std::string &phase) {
    Tensor none;
    for (LayerState &layer : layers.all())
      if (calls.has(layer, phase)) // a segment of frozen parameters has no step
        if (llvm::Error error = calls.call(layer, phase, 0, none))
          return error;
    return llvm::Error::success();
  }

  /// Sums the statistics over all ranks.
  llvm::Error agree() {
    auto type = RankedTensorType::get({3}, Float32Type::get(module.getContext()));
    Tensor mine(type,
                {calls.statistics["loss_sum"], calls.statistics["token_count"], calls.statistics["squared_norm"]});
    auto parts = context.rendezvous->exchange({"all ranks", rank, plan.ranks(), "agree"}, mine);
    if (!parts)
      return parts.takeError();
    size_t index = 0;
    for (const char *name : {"loss_sum", "token_count", "squared_norm"}) {
      calls.statistics[name] = 0;
      for (const auto &part : *parts)
        calls.statistics[name] += part->values[index];
      ++index;
    }
    return llvm::Error::success();
  }

  llvm::Error finishStep(int64_t step) {
    if (llvm::Error error = collectives.sumGradients())
      return error;
    if (llvm::Error error = runAll("norm"))
      return error;
    if (llvm::Error error = agree())
      return error;
    double tokens = calls.statistics["token_count"];
    double norm = std::sqrt(calls.statistics["squared_norm"]) / tokens;
    record(step, calls.statistics["loss_sum"] / tokens, norm, tokens);
    const OptimizerConfig &adam = run.optimizer;
    rt::pb::Settings limits;
    limits.set_skip_spike_factor(adam.skipSpikeFactor);
    limits.set_skip_spike_window(static_cast<uint64_t>(adam.skipSpikeWindow));
    bool isApplied = !rt::isSpike(norm, rt::normLimit(limits, state));
    if (rank == 0)
      out[step].isApplied = isApplied;
    double clip = adam.clip ? std::min(1.0, adam.maxGradNorm / (norm + 1e-6)) : 1.0;
    context.scalars["gradient_scale"] = clip / tokens;
    context.scalars["learning_rate"] = inputs.learningRate(step);
    for (auto [number, group] : llvm::enumerate(adam.rateGroups))
      context.scalars["group_rate" + std::to_string(number + 1)] = group.schedule.peak(); // constant schedules
    state.updates += isApplied;
    context.scalars["bias_correction1"] = 1 / (1 - std::pow(adam.beta1, state.updates));
    context.scalars["bias_correction2"] = 1 / (1 - std::pow(adam.beta2, state.updates));
    context.scalars["apply"] = isApplied;
    if (isApplied)
      state.norms.push_back(norm);
    if (static_cast<int64_t>(state.norms.size()) > adam.skipSpikeWindow)
      state.norms.erase(state.norms.begin());
    if (llvm::Error error = runAll("update"))
      return error;
    if (llvm::Error error = collectives.gatherParameters())
      return error;
    if (rank == 0)
      out[step].exchanges = std::exchange(collectives.counts, {});
    return llvm::Error::success();
  }

  void record(int64_t step, double loss, double norm, double tokens) {
    std::lock_guard<std::mutex> lock(mutex);
    out[step].loss = loss;
    out[step].gradNorm = norm;
    layers.addGradients(out[step], tokens);
    for (const auto &[name, counter] : calls.counters) {
      std::vector<double> &sums = out[step].counters[name];
      sums.resize(counter.values.size());
      for (size_t i = 0; counter.isOwn && i < sums.size(); ++i)
        sums[i] += counter.values[i];
    }
  }

  const RunConfig &run;
  const planner::Plan &plan;
  const TrainingInputs &inputs;
  const int rank, stage, ranksPerStage;
  EvalContext &context;
  std::vector<TrainingStep> &out;
  std::mutex &mutex;
  ModuleOp module;
  RankLayers layers;
  BucketCollectives collectives;
  PhaseCalls calls;
  rt::ScalarState state; ///< updates and norms of earlier steps
};

} // namespace

llvm::Expected<std::vector<TrainingStep>> trainRanks(ModuleOp module, const RunConfig &run, const planner::Plan &plan,
                                                     const TrainingInputs &inputs) {
  std::vector<TrainingStep> steps(inputs.steps);
  std::mutex mutex;
  llvm::Error error = runRanks(plan.ranks(), [&](int rank, EvalContext &context) {
    context.placeOn(module->getAttrOfType<dist::MeshAttr>("dist.mesh"), rank);
    return RankTrainer(module, run, plan, inputs, rank, context, steps, mutex).train();
  });
  if (error)
    return std::move(error);
  return steps;
}

} // namespace espalier
