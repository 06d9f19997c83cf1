// A plan written by hand for a toy model that a person can check: out = e * tokens, then layers x *
// w + shift, then the loss sum (x * e - labels)^2 with the first e tied. Features are the positions
// of a sample; tp splits them.
#pragma once

#include "runtime/data/dataset.h"
#include "runtime/plan.pb.h"

#include <memory>

namespace espalier::rt {

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

/// The plan; always valid for dimensions that divide.
pb::Plan samplePlan(const SampleOptions &options);

/// Numbered samples of arithmetic tokens.
std::shared_ptr<const Dataset> sampleData(int64_t features, int64_t samples = 64);

} // namespace espalier::rt
