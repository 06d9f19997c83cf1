// The collectives of a rank's buckets in the interpreter: sums, scatters and gathers.
#pragma once

#include "compiler/interpret/ranks.h"
#include "test/equivalence/rank_layers.h"

#include <map>
#include <string>
#include <vector>

namespace espalier {

/// Runs the collectives of one rank's buckets over the rendezvous of `context`.
class BucketCollectives {
public:
  /// Keeps references to the arguments.
  BucketCollectives(RankLayers &layers, const EvalContext &context);

  /// All-gathers the shards of a bucket.
  llvm::Error gather(exec::BucketOp bucket, std::vector<double> share, std::vector<double> &whole);
  /// Reduce-scatters the gradients of one micro-batch.
  llvm::Error scatter(LayerState &layer, exec::BucketOp bucket);
  /// Sums gradients over the stages that hold the bucket and over its axes, except axes summed per micro-batch. Also
  /// sums shards of other ranks, which nothing reads.
  llvm::Error sumGradients();
  /// All-gathers the updated parameters.
  llvm::Error gatherParameters();

  std::map<std::string, int64_t> counts; ///< number of collectives by kind: "sum", "scatter", "gather"

private:
  /// All-gathers values of a bucket among the ranks that differ in `axes`, and among the stages `holders` if given.
  llvm::Expected<Rendezvous::Parts> exchange(exec::BucketOp bucket, llvm::ArrayRef<mlir::StringAttr> axes,
                                             llvm::ArrayRef<int64_t> holders, const char *what,
                                             std::vector<double> values);

  RankLayers &layers;
  const EvalContext &context;
  const uint32_t stage;
};

} // namespace espalier
