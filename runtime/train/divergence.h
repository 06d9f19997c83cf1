// When a run has gone astray for good: from then on it only burns time, and would save ruined weights.
#pragma once

#include "runtime/plan.pb.h"
#include "runtime/train/step_scalars.h"

#include <cstdint>
#include <string>

namespace espalier::rt {

/// Judges the steps of a run in their order. All ranks see the same outcomes, so all come to the same verdict.
class DivergenceRule {
public:
  explicit DivergenceRule(const pb::Settings &settings);

  /// The reason to stop after the step that led to `state`; empty if the run may go on. A loss that is not finite is a
  /// reason at once. Skipped steps are a reason when `max_skipped_steps` of them come in a row. Before the first
  /// applied step of a training, a skipped step counts only if the dynamic loss scale has reached its minimum: a scale
  /// that starts at 2^32 takes more than 20 overflows to fit the model. A step without labels counts for nothing.
  std::string judge(const StepOutcome &outcome, const ScalarState &state);

  /// Steps skipped since the last one that was applied, whether they count or not. Until the next step is applied, it
  /// is not known that the weights are of use.
  uint64_t skipped() const { return inRow; }

private:
  /// Whether the dynamic loss scale is still on its way from the initial value to one that fits the model.
  bool isScaleSettling(const ScalarState &state) const;

  const uint64_t mostSkipped; ///< 0: any number
  const bool isDynamic;
  const double initialScale, minimumScale;
  uint64_t inRow = 0;
  uint64_t counted = 0; ///< of `inRow`, the steps that count towards `mostSkipped`
};

/// What may help a run that DivergenceRule has stopped: the settings that the outcome points at. `isEverApplied` says
/// whether a step of the run was applied, and `lossScale` is the scale after its last step.
std::string divergenceAdvice(const pb::Settings &settings, bool isEverApplied, double lossScale);

} // namespace espalier::rt
