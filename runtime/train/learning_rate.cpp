// Notation: t step, W warmup steps, T total steps, r = (t - W) / (T - W) the progress after warmup.
#include "runtime/train/learning_rate.h"

#include "runtime/status.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

namespace espalier::rt {
namespace {

/// Returns the decay factor at progress r in [0, 1]: 1 at the peak rate, 0 at the end rate.
double decayed(const pb::LearningRate &schedule, double r) {
  const std::string &kind = schedule.kind();
  if (kind == "linear")
    return 1 - r;
  if (kind == "cosine") // half a cosine for cycles 0.5
    return 0.5 * (1 + std::cos(2 * std::numbers::pi * schedule.cycles() * r));
  if (kind == "polynomial")
    return std::pow(1 - r, schedule.power());
  throw PlanError(fmt::format("unknown learning-rate schedule '{}'; known: constant, linear, "
                              "cosine, polynomial, inverse_sqrt, wsd",
                              kind));
}

/// Returns the decay factor of wsd: 1 until the last `decay` steps, then 2 * (1/2)^r - 1.
double warmupStableDecay(const pb::LearningRate &schedule, double t, double total) {
  double decay = std::clamp<double>(static_cast<double>(schedule.decay_steps()), 0, total);
  if (decay == 0 || t < total - decay)
    return 1;
  double r = std::min(1.0, (t - (total - decay)) / decay);
  return 2 * std::pow(0.5, r) - 1;
}

} // namespace

double learningRate(const pb::LearningRate &schedule, int64_t updates, int64_t runSteps) {
  auto step = static_cast<double>(updates);
  auto total =
      static_cast<double>(std::max<int64_t>(1, schedule.total_steps() > 0 ? schedule.total_steps() : runSteps));
  double warmup = schedule.warmup_ratio() > 0 ? std::floor(schedule.warmup_ratio() * total)
                                              : static_cast<double>(std::max<int64_t>(0, schedule.warmup_steps()));
  double peak = schedule.peak(), end = schedule.end();
  if (step < warmup)
    return schedule.warmup_init() + (peak - schedule.warmup_init()) * step / warmup;
  const std::string &kind = schedule.kind();
  if (kind == "constant" || kind.empty())
    return peak;
  if (kind == "inverse_sqrt")
    return std::max(end, peak * std::sqrt(std::max<double>(warmup, 1)) / std::sqrt(std::max<double>(step, 1)));
  if (kind == "wsd")
    return end + (peak - end) * warmupStableDecay(schedule, step, total);
  double r = total > warmup ? std::min(1.0, (step - warmup) / (total - warmup)) : 1.0;
  return end + (peak - end) * decayed(schedule, r);
}

void requireLearning(const pb::Settings &settings, int64_t runSteps) {
  auto learns = [&](const pb::LearningRate &schedule) {
    // A schedule rises in its first or second step, or never. A run may be shorter than its schedule.
    bool hasSecond = std::max(runSteps, schedule.total_steps()) > 1;
    auto steps = static_cast<double>(runSteps);
    return learningRate(schedule, 0, steps) != 0 || (hasSecond && learningRate(schedule, 1, steps) != 0);
  };
  if (runSteps > 0 && !learns(settings.learning_rate()) && std::ranges::none_of(settings.rate_groups(), learns))
    throw PlanError("the learning rate is 0 at every step of the run, because the warm-up is as long as the schedule; "
                    "give more steps, or lr_schedule.warmup_lr_init above 0");
}

} // namespace espalier::rt
