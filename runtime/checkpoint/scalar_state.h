// The part of a run's state that the host computes.
#pragma once

#include "format/plan.pb.h"

#include <cstdint>
#include <vector>

namespace espalier::rt {

/// The state that persists between steps and in checkpoints. It is equal on every rank.
struct ScalarState {
  int64_t step = 0;     ///< steps begun, including skipped ones; selects the random streams of dropout
  int64_t updates = 0;  ///< steps applied; determines the learning rate and the bias corrections
  int64_t consumed = 0; ///< samples read
  double lossScale = 1;
  uint64_t cleanSteps = 0; ///< steps without overflow since the scale last changed
  /// The gradient norms of the last applied steps, the latest last; empty unless Settings.skip_spike_factor is set.
  std::vector<double> norms = {};

  bool operator==(const ScalarState &) const = default;
};

/// Returns the state before the first step.
ScalarState initialScalars(const pb::Settings &settings);

} // namespace espalier::rt
