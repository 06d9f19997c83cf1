#include "tools/plan/measured_step.h"

#include "compiler/choose/choose_plan.h"
#include "messages/error_line.h"
#include "planner/answer/explain.h"
#include "planner/answer/measured.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <string_view>

namespace espalier {

/// Reads "12.4s", "850ms" or "12.4" as seconds.
static std::optional<double> readSeconds(const std::string &text) {
  double seconds = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (error != std::errc() || !(seconds > 0) || !std::isfinite(seconds) ||
      (unit != "s" && unit != "ms" && !unit.empty()))
    return std::nullopt;
  return unit == "ms" ? seconds / 1000 : seconds;
}

static bool refuse(const std::string &reason) {
  printError("--measured", reason);
  return false;
}

bool MeasuredStep::fit(const RunConfig &run) {
  const std::string &text = arguments.measured;
  if (text.empty())
    return true;
  std::optional<double> seconds = readSeconds(text);
  if (!seconds)
    return refuse(fmt::format("wanted the time of a step such as 12.4s or 850ms, got {}", text));
  if (!run.isPinned)
    return refuse("the run file leaves the plan to the planner; pin the plan that was measured with "
                  "parallel.parallel_mode: 1");
  std::optional<planner::Problem> problem = profiles.profile(run);
  if (!problem)
    return false;
  planner::PricedPlan own = planner::pricePlan(*problem, pinnedPlan(run));
  factor = planner::rateFactor(*problem, own.plan, *seconds);
  if (!factor)
    return refuse(fmt::format("the step is predicted to take {}; {} is not within a factor of 16",
                              planner::describeSeconds(own.prediction), text));
  fmt::print(stderr,
             "{}: note: the file's plan took {} and was predicted to take {}; all rates of {} (compute, memory, link, "
             "network) are multiplied by {:.3g}\n",
             arguments.file, text, planner::describeSeconds(own.prediction), run.cluster.name, *factor);
  return true;
}

void MeasuredStep::apply(planner::Problem &problem) const {
  if (factor)
    planner::useMeasured(problem, *factor);
}

} // namespace espalier
