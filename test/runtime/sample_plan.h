// A hand-written plan for a toy model that can be checked by hand: out = e * tokens, then layers x * w + shift, then
// the loss sum (x * e - labels)^2 with the first e tied. Features are the positions of a sample, and tp shards them.
#pragma once

#include "runtime/dataset/dataset.h"
#include "runtime/plan.pb.h"

#include <memory>

namespace espalier::rt {

/// Sizes and techniques of the sample plan.
struct SampleOptions {
  int dp = 1, tp = 1, pp = 1;
  int layers = 3;
  int64_t samples = 2;      ///< per micro-batch
  int64_t microBatches = 4; ///< per replica and step
  int64_t features = 12;
  bool zero = false;
  bool folds = true; ///< lists that repeat are blocks of several rounds
  bool dynamicScale = false;
  double maxGradNorm = 0;
  double peakRate = 0.01;
};

/// Returns the plan. It is valid for all divisible dimensions.
pb::Plan samplePlan(const SampleOptions &options);

/// Returns numbered samples of arithmetic token sequences.
std::shared_ptr<const Dataset> sampleData(int64_t features, int64_t samples = 64);

} // namespace espalier::rt
