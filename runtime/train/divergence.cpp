// A pure function of what the steps came to; what follows from the verdict is the trainer's business.
#include "runtime/train/divergence.h"

#include <cmath>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

/// Of plans that say nothing.
constexpr uint64_t defaultMostSkipped = 20;

} // namespace

DivergenceRule::DivergenceRule(const pb::Settings &settings)
    : mostSkipped(settings.has_max_skipped_steps() ? settings.max_skipped_steps() : defaultMostSkipped) {}

std::string DivergenceRule::judge(const StepOutcome &outcome, const ScalarState &state) {
  if (!outcome.hasLabels())
    return "";
  if (!std::isfinite(outcome.loss))
    return fmt::format("the loss of step {} is not finite", state.step);
  inRow = outcome.isApplied ? 0 : inRow + 1;
  if (mostSkipped == 0 || inRow < mostSkipped)
    return "";
  return fmt::format("{} steps in a row were skipped, up to step {}: their gradients are not finite "
                     "(runner_wrapper.max_skipped_steps is {})",
                     inRow, state.step, mostSkipped);
}

} // namespace espalier::rt
