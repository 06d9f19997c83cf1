// Every rank computes equal scalars from the same all-reduced sums, so the scalars need no communication.
#include "runtime/train/step_scalars.h"

#include "runtime/kernels/update_scalars.h"
#include "runtime/train/learning_rate.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace espalier::rt {
namespace {

/// Stores an integer's bits in a float slot. The slot is only copied, never used as a float.
float stepBits(int64_t step) { return std::bit_cast<float>(static_cast<uint32_t>(step)); }

/// Returns the gradient of a token's loss at which a step's backward pass begins. Programs sum the losses of tokens,
/// but other systems scale a mean, so that a run file's scale fits a mean over the tokens of a sample. The factor is a
/// power of two, so that it rounds nothing.
float gradientOfLoss(const pb::Settings &settings, double lossScale) {
  bool isScaled = settings.initial_loss_scale() > 0 && settings.initial_loss_scale() != 1;
  int tokens = settings.sequence() > 0 ? std::ilogb(static_cast<double>(settings.sequence())) : 0;
  return static_cast<float>(isScaled ? std::ldexp(lossScale, -tokens) : lossScale);
}

} // namespace

ScalarState initialScalars(const pb::Settings &settings) {
  ScalarState state;
  state.lossScale = settings.initial_loss_scale() > 0 ? settings.initial_loss_scale() : 1;
  return state;
}

Scalars beginStep(const pb::Settings &settings, const ScalarState &state, int64_t runSteps) {
  double update = state.updates + 1;
  Scalars scalars{};
  scalars[LossScale] = gradientOfLoss(settings, state.lossScale);
  scalars[LearningRate] = learningRate(settings.learning_rate(), state.updates, runSteps);
  scalars[BiasCorrection1] = 1 / (1 - std::pow(settings.beta1(), update));
  scalars[BiasCorrection2] = 1 / (1 - std::pow(settings.beta2(), update));
  scalars[Step] = stepBits(state.step);
  return scalars;
}

Scalars beginEvaluation(int64_t step) {
  Scalars scalars{};
  scalars[LossScale] = 1;
  scalars[Step] = stepBits(step);
  return scalars;
}

StepOutcome endStep(const pb::Settings &settings, const Scalars &scalars, ScalarState &state) {
  StepOutcome outcome;
  outcome.isApplied = scalars[Apply] != 0;
  outcome.tokens = scalars[TokenCount];
  outcome.loss = outcome.hasLabels() ? double(scalars[LossSum]) / outcome.tokens : std::nan("");
  outcome.gradNorm = outcome.hasLabels() ? normalisedNorm(scalars[TokenCount], scalars[SquaredNorm], scalars[LossScale])
                                         : std::nan("");
  outcome.learningRate = scalars[LearningRate];
  state.step += 1;
  state.updates += outcome.isApplied;
  state.consumed += settings.global_batch();
  // A batch without labels computes nothing that could overflow.
  if (!settings.dynamic_loss_scale() || !outcome.hasLabels())
    return outcome;
  double factor = settings.loss_scale_factor() > 1 ? settings.loss_scale_factor() : 2;
  if (!outcome.isApplied) {
    state.lossScale = std::max(settings.minimum_loss_scale(), state.lossScale / factor);
    state.cleanSteps = 0;
  } else if (++state.cleanSteps >= settings.loss_scale_window() &&
             std::isfinite(static_cast<float>(state.lossScale * factor))) {
    state.lossScale *= factor;
    state.cleanSteps = 0;
  }
  return outcome;
}

} // namespace espalier::rt
