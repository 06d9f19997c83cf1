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

  /// The reason to stop after the step that led to `state`; empty where the run may go on. A loss that is not finite is
  /// one at once, skipped steps are when `max_skipped_steps` of them come in a row. A step without labels counts for
  /// nothing.
  std::string judge(const StepOutcome &outcome, const ScalarState &state);

  /// Steps skipped since the last one that was applied. Until the next is, it is not known that the weights are of use.
  uint64_t skipped() const { return inRow; }

private:
  const uint64_t mostSkipped; ///< 0: any number
  uint64_t inRow = 0;
};

} // namespace espalier::rt
