#include "planner/answer/what_if.h"

#include "planner/answer/explain.h"

#include <fmt/format.h>

namespace espalier::planner {

std::optional<WhatIf> WhatIf::ofBest() const {
  if (!bestBefore && !bestAfter)
    return std::nullopt;
  WhatIf best = *this;
  best.before = bestBefore.value_or(before);
  best.after = bestAfter.value_or(after);
  best.bestBefore = best.bestAfter = std::nullopt;
  return best;
}

double WhatIf::stepRatio() const { return after.prediction.stepSeconds / before.prediction.stepSeconds; }

double WhatIf::tokenRateRatio() const { return after.prediction.tokensPerSecond / before.prediction.tokensPerSecond; }

double WhatIf::costRatio() const { return devicesAfter / tokenRateRatio() / devicesBefore; }

namespace {

std::string line(const char *when, int devices, const std::string &machine, const PricedPlan &plan) {
  return fmt::format("{:4} {} devices of {}: {}, {:.0f} tokens/s, {}", when, devices, machine,
                     describeSeconds(plan.prediction), plan.prediction.tokensPerSecond, describePlan(plan));
}

} // namespace

std::string printWhatIf(const WhatIf &answer) {
  std::string text = line("now", answer.devicesBefore, answer.machineBefore, answer.before) + "\n" +
                     line("then", answer.devicesAfter, answer.machineAfter, answer.after);
  if (answer.idleDevices > 0)
    text += fmt::format(", {} devices idle", answer.idleDevices);
  text += fmt::format("\nstep time x {:.4g}, tokens/s x {:.4g}, device seconds per token x {:.4g}, {}",
                      answer.stepRatio(), answer.tokenRateRatio(), answer.costRatio(), batchLine(answer.after.plan));
  if (std::optional<WhatIf> best = answer.ofBest())
    text += "with the best plans in place of pinned ones:\n" + printWhatIf(*best);
  return text;
}

} // namespace espalier::planner
