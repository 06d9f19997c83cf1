// Runs the phase functions of a rank's layers in the interpreter.
#pragma once

#include "test/equivalence/bucket_collectives.h"
#include "test/equivalence/rank_layers.h"

#include <map>
#include <string>

namespace espalier {

/// Runs phase functions. Arguments are found and results are stored by role and name.
class PhaseCalls {
public:
  /// Keeps references to the arguments.
  PhaseCalls(mlir::ModuleOp module, const planner::Plan &plan, const TrainingInputs &inputs, EvalContext &context,
             RankLayers &layers, BucketCollectives &collectives)
      : module(module), plan(plan), inputs(inputs), context(context), layers(layers), collectives(collectives) {}

  /// Returns whether the layer has the phase.
  bool has(const LayerState &layer, const std::string &phase);
  /// Runs a phase of a layer. `stream` is the incoming cotangent, and becomes the outgoing stream or cotangent.
  llvm::Error call(LayerState &layer, const std::string &phase, int64_t microBatch, Tensor &stream);
  /// Runs a phase of a layer with gathered parameters.
  llvm::Error callWhole(LayerState &layer, const std::string &phase, int64_t microBatch, Tensor &stream);

  std::map<std::string, double> statistics; ///< of this step: "loss_sum", "token_count", "squared_norm"
  /// A counter of a layer.
  struct Counter {
    std::vector<double> values;
    bool isOwn = true; ///< false if another rank has the same counts
  };
  std::map<std::string, Counter> counters; ///< of this step, by "block.0.chosen0"

private:
  /// Returns the counter of an argument.
  Counter &counter(const LayerState &layer, mlir::DictionaryAttr attributes, mlir::RankedTensorType type);
  Tensor read(LayerState &layer, mlir::DictionaryAttr attributes, mlir::RankedTensorType type, int64_t microBatch,
              const Tensor &stream);
  void write(LayerState &layer, mlir::DictionaryAttr attributes, Tensor value, int64_t microBatch, Tensor &stream);
  /// Returns the samples of the rank's replica, each restricted to this rank's shard of the sequence.
  Tensor input(const std::string &name, mlir::RankedTensorType type, int64_t microBatch) const;

  mlir::ModuleOp module;
  const planner::Plan &plan;
  const TrainingInputs &inputs;
  EvalContext &context;
  RankLayers &layers;
  BucketCollectives &collectives;
};

} // namespace espalier
