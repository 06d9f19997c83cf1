// The layers of one rank's stage and the values that the rank stores for them, for training in the interpreter.
#pragma once

#include "compiler/driver.h"
#include "compiler/interpret/eval.h"
#include "compiler/layout/stage_calls.h"
#include "dialects/exec/dialect.h"
#include "test/equivalence/train_ranks.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

/// One layer call of a stage and its stored values. Parameters, accumulators and moments are flat, bucket by bucket, as
/// in the regions of the plan, so that shards are contiguous ranges. Under ZeRO 2 the accumulator is the rank's shard,
/// and one micro-batch accumulates into an unsharded buffer. Under ZeRO 3 parameters are the shard and are gathered
/// while a call reads them.
struct LayerState {
  LayerCall call;
  mutable exec::SegmentOp segment;
  std::map<std::string, std::vector<double>> stores;      ///< "parameter/block.plain", "state/block.plain.moment1"
  std::map<int64_t, std::map<std::string, Tensor>> saved; ///< keyed by micro-batch: saved values and the incoming
                                                          ///< stream
  LayerState *tiedOwner = nullptr;                        ///< owner of tied parameters on the same stage

  /// Returns the name of the layer, as in the plan: "block.0", or "head".
  std::string name() const;
  /// Returns the name of a parameter in the whole model.
  std::string globalName(exec::ParameterOp parameter) const;
  /// Returns the layer of this stage that stores the bucket.
  LayerState &ownerOf(exec::BucketOp bucket) { return bucket.getTiedHere() ? *tiedOwner : *this; }
};

/// The layers of one rank's stage.
class RankLayers {
public:
  /// Creates the layers with their initial values. `context` has the rank's place on the mesh.
  RankLayers(mlir::ModuleOp module, const RunConfig &run, const planner::Plan &plan, const EvalContext &context);

  /// Returns all layers of the stage, in model order.
  llvm::MutableArrayRef<LayerState> all() { return layers; }
  /// Returns the layers of a chunk of the stage.
  llvm::MutableArrayRef<LayerState> ofChunk(int chunk);

  /// Sets all gradient accumulators to 0.
  void clearAccumulators();

  /// Returns this rank's position among the ranks that differ on `axes` only.
  int64_t positionOn(llvm::ArrayRef<mlir::StringAttr> axes) const;
  /// Returns the elements of a bucket that this rank updates.
  std::pair<int64_t, int64_t> ownPart(exec::BucketOp bucket) const;

  /// Returns the store of a parameter-like argument and the offset of the argument in it. `name` is the name of a
  /// parameter, of a bucket, or of a part of a bucket's state.
  std::pair<std::vector<double> *, int64_t> store(LayerState &layer, const std::string &role,
                                                  const std::string &name) const;

  /// Copies this rank's shards of the gradients into `step`, divided by `tokens`.
  void addGradients(TrainingStep &step, double tokens) const;

private:
  void initialize(LayerState &layer) const;
  /// Calls `visit(local flat index, global flat index or -1 for padding)` for each local element of a parameter.
  void forEachElement(exec::ParameterOp parameter, llvm::function_ref<void(int64_t, int64_t)> visit) const;

  const RunConfig &run;
  const EvalContext &context;
  const mlir::Type storedType;
  std::vector<LayerState> layers;
  std::vector<std::pair<size_t, size_t>> chunks; ///< of the stage: first index into `layers`, and count
};

} // namespace espalier
