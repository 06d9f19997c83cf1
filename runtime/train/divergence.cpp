// A pure function of the outcomes of the steps. The trainer acts on the result.
#include "runtime/train/divergence.h"

#include "messages/counted.h"

#include <cmath>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

/// The default for plans without a limit.
constexpr uint64_t defaultMostSkipped = 20;

/// The key of the run file that sets the loss scale, or its initial value.
const char *scaleKey(bool isDynamic) {
  return isDynamic ? "runner_wrapper.scale_sense.loss_scale_value" : "runner_wrapper.scale_sense";
}

} // namespace

DivergenceRule::DivergenceRule(const pb::Settings &settings)
    : mostSkipped(settings.has_max_skipped_steps() ? settings.max_skipped_steps() : defaultMostSkipped),
      isDynamic(settings.dynamic_loss_scale()), initialScale(initialScalars(settings).lossScale),
      minimumScale(settings.minimum_loss_scale()), spikeFactor(settings.skip_spike_factor()) {}

bool DivergenceRule::isScaleSettling(const ScalarState &state) const {
  return isDynamic && state.updates == 0 && state.lossScale > minimumScale;
}

std::string DivergenceRule::judge(const StepOutcome &outcome, const ScalarState &state) {
  if (!outcome.hasLabels())
    return "";
  if (!std::isfinite(outcome.loss))
    return fmt::format("the loss of step {} is not finite", state.step);
  if (outcome.isApplied)
    restart();
  else
    ++inRow;
  spikes += outcome.isSpike;
  if (!outcome.isApplied && (outcome.isSpike || !isScaleSettling(state)))
    ++counted;
  if (mostSkipped == 0 || counted < mostSkipped)
    return "";
  return fmt::format("{} steps in a row were skipped, up to step {}: {}, runner_wrapper.max_skipped_steps is {})",
                     inRow, state.step, reason(state.lossScale), mostSkipped);
}

std::string DivergenceRule::judgeEnd(const ScalarState &state) const {
  if (spikes == inRow || (state.updates > 0 && inRow < mostAtEnd))
    return "";
  return fmt::format("the run ends with {} skipped in a row, up to step {}: {})",
                     rt::counted(static_cast<int64_t>(inRow), "step"), state.step, reason(state.lossScale));
}

std::string DivergenceRule::reason(double lossScale) const {
  if (spikes == inRow)
    return fmt::format("their gradient norms are above the limit (runner_wrapper.skip_spike_factor is {:g}",
                       spikeFactor);
  return fmt::format("their gradients are not finite{} ({} is {:g}, the loss scale is {:g}",
                     spikes > 0 ? ", or their norms are above the limit of runner_wrapper.skip_spike_factor" : "",
                     scaleKey(isDynamic), initialScale, lossScale);
}

std::string divergenceAdvice(const pb::Settings &settings, bool isEverApplied, double lossScale) {
  if (isEverApplied)
    return "a lower lr_schedule.learning_rate, a longer warmup or runner_wrapper.use_clip_grad may help";
  bool isDynamic = settings.dynamic_loss_scale();
  if (lossScale > (isDynamic ? settings.minimum_loss_scale() : 1))
    return fmt::format("no step was applied; a lower {} may help", scaleKey(isDynamic));
  return "no step was applied, and a lower loss scale cannot help; model.model_config.compute_dtype bfloat16 or "
         "float32 "
         "may, or initial weights of a smaller spread";
}

} // namespace espalier::rt
