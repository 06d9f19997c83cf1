// Every rank computes equal scalars from the same all-reduced sums, so the scalars need no communication.
#include "runtime/train/step_scalars.h"

#include "runtime/kernels/update_scalars.h"
#include "runtime/train/learning_rate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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

/// Returns the median, the mean of the two middle numbers if there are two.
double medianOf(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  size_t middle = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[middle] : (numbers[middle - 1] + numbers[middle]) / 2;
}

/// Keeps the norm of an applied step for the limits of later steps.
void keepNorm(const pb::Settings &settings, double norm, std::vector<double> &norms) {
  norms.push_back(norm);
  if (norms.size() > settings.skip_spike_window())
    norms.erase(norms.begin(), norms.end() - static_cast<std::ptrdiff_t>(settings.skip_spike_window()));
}

} // namespace

float normLimit(const pb::Settings &settings, const ScalarState &state) {
  uint64_t least = std::max<uint64_t>(1, settings.skip_spike_window() / 2);
  if (settings.skip_spike_factor() <= 0 || state.norms.size() < least)
    return 0;
  double limit = settings.skip_spike_factor() * medianOf(state.norms);
  return static_cast<float>(
      std::clamp<double>(limit, std::numeric_limits<float>::min(), std::numeric_limits<float>::max()));
}

Scalars beginStep(const pb::Settings &settings, const ScalarState &state, int64_t runSteps) {
  double update = state.updates + 1;
  Scalars scalars{};
  scalars[LossScale] = gradientOfLoss(settings, state.lossScale);
  scalars[LearningRate] = learningRate(settings.learning_rate(), state.updates, runSteps);
  for (int group = 0; group < std::min(settings.rate_groups_size(), mostRateGroups); ++group)
    scalars[GroupRate + group] = learningRate(settings.rate_groups(group), state.updates, runSteps);
  scalars[BiasCorrection1] = 1 / (1 - std::pow(settings.beta1(), update));
  scalars[BiasCorrection2] = 1 / (1 - std::pow(settings.beta2(), update));
  scalars[Step] = stepBits(state.step);
  scalars[NormLimit] = normLimit(settings, state);
  return scalars;
}

Scalars beginEvaluation(int64_t step) {
  Scalars scalars{};
  scalars[LossScale] = 1;
  scalars[Step] = stepBits(step);
  return scalars;
}

StepOutcome endStep(const pb::Settings &settings, const Scalars &scalars, ScalarState &state, int64_t samples) {
  StepOutcome outcome;
  outcome.isApplied = scalars[Apply] != 0;
  outcome.tokens = scalars[TokenCount];
  outcome.loss = outcome.hasLabels() ? double(scalars[LossSum]) / outcome.tokens : std::nan("");
  outcome.gradNorm = outcome.hasLabels() ? normalisedNorm(scalars[TokenCount], scalars[SquaredNorm], scalars[LossScale])
                                         : std::nan("");
  outcome.learningRate = scalars[LearningRate];
  outcome.normLimit = scalars[NormLimit];
  outcome.isSpike = !outcome.isApplied && std::isfinite(outcome.gradNorm) && std::isfinite(outcome.loss) &&
                    isSpike(outcome.gradNorm, scalars[NormLimit]);
  if (outcome.isApplied && settings.skip_spike_factor() > 0)
    keepNorm(settings, outcome.gradNorm, state.norms);
  state.step += 1;
  state.updates += outcome.isApplied;
  state.consumed += samples;
  // A batch without labels computes nothing that could overflow.
  if (!settings.dynamic_loss_scale() || !outcome.hasLabels())
    return outcome;
  double factor = settings.loss_scale_factor() > 1 ? settings.loss_scale_factor() : 2;
  if (!outcome.isApplied && !outcome.isSpike) {
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
