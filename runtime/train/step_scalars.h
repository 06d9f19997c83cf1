// The scalars of a step that the host computes: learning rate, bias corrections, loss scale.
#pragma once

#include "format/abi.h"
#include "format/plan.pb.h"
#include "runtime/checkpoint/scalar_state.h"

namespace espalier::rt {

/// The outcome of a step, after its sums were all-reduced.
struct StepOutcome {
  double loss = 0;     ///< mean over the tokens with loss weight; NaN if there are none
  double gradNorm = 0; ///< of the normalised gradient, before clipping; NaN without labels
  double learningRate = 0;
  double tokens = 0;     ///< tokens with loss weight
  bool isApplied = true; ///< false after an overflow or a spike, and without labels
  bool isSpike = false;  ///< the norm was finite and above normLimit
  double normLimit = 0;  ///< 0: none

  /// Returns whether any label counts. A batch whose labels are all masked trains nothing, but that is not an overflow.
  bool hasLabels() const { return tokens > 0; }
};

/// Returns the norm above which a step is skipped: Settings.skip_spike_factor times the median of the norms in `state`.
/// Returns 0, for no limit, until there are half as many norms as Settings.skip_spike_window. The value is a float,
/// because ranks compare with the number in the slot NormLimit.
float normLimit(const pb::Settings &settings, const ScalarState &state);

/// Returns the scalars of the next step: learning rate, loss scale, bias corrections and step number. The sums are 0.
/// The learning rate counts applied steps, whatever their batch sizes, so that the schedule ends where the run ends.
Scalars beginStep(const pb::Settings &settings, const ScalarState &state, int64_t runSteps);

/// Returns the scalars of an evaluation after `step` steps. The loss is not scaled.
Scalars beginEvaluation(int64_t step);

/// Reads the outcome of a step and advances `state`. A skipped step advances neither the learning rate nor the bias
/// corrections, nor does it enter the norms. An overflow of a step with labels decreases a dynamic loss scale by its
/// factor. `loss_scale_window` steps without overflow increase the scale again.
/// The step had `samples` samples.
StepOutcome endStep(const pb::Settings &settings, const Scalars &scalars, ScalarState &state, int64_t samples);

} // namespace espalier::rt
