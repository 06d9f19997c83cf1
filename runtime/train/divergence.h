// Detects runs that have diverged for good. Continuing such a run wastes time and saves useless weights.
#pragma once

#include "format/plan.pb.h"
#include "runtime/train/step_scalars.h"

#include <cstdint>
#include <string>

namespace espalier::rt {

/// Judges the steps of a run in order. All ranks see the same outcomes, so all ranks stop at the same step.
class DivergenceRule {
public:
  /// Reads the limits from the settings of the plan.
  explicit DivergenceRule(const pb::Settings &settings);

  /// Returns the reason to stop after the step that led to `state`, or an empty string. A loss that is not finite is a
  /// reason at once. A sequence of `max_skipped_steps` skipped steps is a reason. Before the first applied step, a
  /// skipped step counts only if the dynamic loss scale has reached its minimum, because a scale that starts at 2^32
  /// needs more than 20 overflows to adapt. Steps without labels do not count.
  std::string judge(const StepOutcome &outcome, const ScalarState &state);

  /// Returns why a run that ends at `state` has not succeeded: no step was ever applied but some were skipped, or at
  /// least `mostAtEnd` steps before its end were skipped. Empty otherwise, and if all of them were spikes, which the
  /// run was told to skip.
  std::string judgeEnd(const ScalarState &state) const;
  static constexpr uint64_t mostAtEnd = 5;

  /// Forgets the steps judged before, because the run goes back to a checkpoint.
  void restart() { inRow = counted = spikes = 0; }

  /// Returns the number of steps skipped since the last applied step, whether they count or not. Until a step is
  /// applied, the weights may be useless.
  uint64_t skipped() const { return inRow; }

private:
  /// Returns why the steps of `inRow` were skipped, and the settings that matter.
  std::string reason(double lossScale) const;
  /// Returns whether the dynamic loss scale is still adapting from its initial value to the model.
  bool isScaleSettling(const ScalarState &state) const;

  const uint64_t mostSkipped; ///< 0: any number
  const bool isDynamic;
  const double initialScale, minimumScale, spikeFactor;
  uint64_t inRow = 0;
  uint64_t counted = 0; ///< the steps of `inRow` that count towards `mostSkipped`
  uint64_t spikes = 0;  ///< the steps of `inRow` with a norm above the limit
};

/// Returns the settings that may help a run that DivergenceRule has stopped. `isEverApplied` tells whether any step of
/// the run was applied. `lossScale` is the scale after the last step.
std::string divergenceAdvice(const pb::Settings &settings, bool isEverApplied, double lossScale);

} // namespace espalier::rt
