// A hand-written plan for a toy model with simple formulas. The first layer is out = e * tokens. The other layers
// compute x * w + shift. The loss sum is (x * e - labels)^2 with the same e. Features are the positions of a sample.
// Tensor parallelism shards the features.
#pragma once

#include "format/plan.pb.h"
#include "runtime/dataset/dataset.h"

#include <memory>

namespace espalier::rt {

/// Sizes and techniques of the sample plan.
struct SampleOptions {
  int dp = 1, tp = 1, pp = 1;
  int layers = 3;
  int64_t samples = 2;      ///< samples per micro-batch
  int64_t microBatches = 4; ///< micro-batches per replica and step
  int64_t features = 12;
  bool zero = false;
  bool folds = true; ///< folds repeated actions into blocks of several rounds
  bool dynamicScale = false;
  double maxGradNorm = 0;
  double peakRate = 0.01;
};

/// Returns the plan. The sizes must be divisible by the splits.
pb::Plan samplePlan(const SampleOptions &options);

/// Returns numbered samples of arithmetic token sequences.
std::shared_ptr<const Dataset> sampleData(int64_t features, int64_t samples = 64);

} // namespace espalier::rt
