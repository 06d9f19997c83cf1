// The scalars of a step that the host decides: learning rate, bias corrections, loss scale.
#pragma once

#include "runtime/abi.h"
#include "runtime/plan.pb.h"

#include <cstdint>

namespace espalier::rt {

/// What survives from step to step and into checkpoints; equal on every rank.
struct ScalarState {
  int64_t step = 0;     ///< optimizer steps begun, skipped ones too: drives dropout
  int64_t updates = 0;  ///< steps applied: drives the learning rate and the bias corrections
  int64_t consumed = 0; ///< samples read
  double lossScale = 1;
  uint64_t cleanSteps = 0; ///< steps without overflow since the scale last changed

  bool operator==(const ScalarState &) const = default;
};

/// The state before the first step.
ScalarState initialScalars(const pb::Settings &settings);

/// What a step came to, after its sums were agreed.
struct StepOutcome {
  double loss = 0;     ///< mean over the tokens that count; NaN without any
  double gradNorm = 0; ///< of the normalised gradient, before clipping; NaN without labels
  double learningRate = 0;
  double tokens = 0;     ///< that count
  bool isApplied = true; ///< false after an overflow and without labels

  /// A batch whose labels are all masked trains nothing; that is no overflow.
  bool hasLabels() const { return tokens > 0; }
};

/// Learning rate, loss scale, bias corrections and number of the coming step; the sums are 0.
Scalars beginStep(const pb::Settings &settings, const ScalarState &state, int64_t runSteps);

/// The scalars of an evaluation after `step` steps: no loss is scaled.
Scalars beginEvaluation(int64_t step);

/// Reads the outcome and moves the state on: a skipped step advances neither the learning rate nor the bias
/// corrections and, if it had labels, lowers a dynamic loss scale by its factor; `loss_scale_window` clean steps raise
/// it.
StepOutcome endStep(const pb::Settings &settings, const Scalars &scalars, ScalarState &state);

} // namespace espalier::rt
