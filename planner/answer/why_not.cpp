#include "planner/answer/why_not.h"

#include "planner/answer/compare.h"
#include "planner/answer/explain.h"
#include "planner/model/simplicity.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace espalier::planner {

WhyNot whyNot(const Problem &problem, const SearchResult &solved, const Pins &wish, const SearchOptions &options) {
  const PricedPlan &chosen = solved.plans.front();
  Problem wished = problem;
  wished.pins = problem.pins.with(wish);
  SearchOptions one = options;
  one.alternatives = 0;
  one.relax = one.prove = one.simplest =
      false; // return early, within the gap of the bounds, with the fastest plan of the wish
  bool isAsWished = chosen.prediction.fits() && wished.pins.hold(chosen.plan);
  WhyNot answer;
  answer.chosen = chosen;
  answer.error = problem.error;
  if (isAsWished) {
    answer.best = chosen;
    answer.lowerBoundSeconds = solved.statistics.lowerBoundSeconds;
  }
  // A plan that the user pinned may satisfy the wish without being the best plan of the wish.
  if (!isAsWished || !solved.statistics.optimal) {
    SearchResult result = search(wished, one);
    bool isFound = !result.plans.empty();
    if (!isFound && !isAsWished) {
      answer.violated = result.errors;
      if (!result.binding.empty())
        answer.violated.push_back(result.binding);
      answer.impossible = result.nearest.plan.stages.empty();
      return answer;
    }
    if (isFound)
      answer.lowerBoundSeconds = std::max(answer.lowerBoundSeconds, result.statistics.lowerBoundSeconds);
    if (!isAsWished || (isFound && result.plans[0].prediction.stepSeconds < chosen.prediction.stepSeconds))
      answer.best = result.plans[0];
  }
  std::vector<std::pair<std::string, double>> before = timeEntries(chosen.prediction.time);
  for (auto &[name, seconds] : timeEntries(answer.best.prediction.time)) {
    double more = seconds - before[answer.items.size()].second;
    answer.items.emplace_back(name, more);
  }
  answer.moreSeconds = answer.best.prediction.stepSeconds - chosen.prediction.stepSeconds;
  answer.isSimpler = simplicityOf(answer.best, problem.machine) < simplicityOf(chosen, problem.machine);
  return answer;
}

Comparison WhyNot::comparison() const { return compare(error, chosen, best); }

std::string verdict(const WhyNot &answer) {
  if (!answer.violated.empty())
    return "no such plan";
  std::string times = describeSeconds(answer.best.prediction) + " as wished, " +
                      describeSeconds(answer.chosen.prediction) + " as chosen";
  Comparison found = answer.comparison();
  if (found.isSame())
    return fmt::format("{}; simpler: {}; {}", describe(found), answer.isSimpler ? "yes" : "no", times);
  return fmt::format("{:.3g} s {}, {}; {}", std::abs(answer.moreSeconds), answer.moreSeconds > 0 ? "slower" : "faster",
                     describe(found), times);
}

std::string printWhyNot(const WhyNot &answer) {
  std::string text;
  for (const std::string &reason : answer.violated)
    text += verdict(answer) + ": " + reason + "\n";
  if (!answer.violated.empty())
    return text;
  text = verdict(answer) + "\n" + batchLine(answer.best.plan) + describePlan(answer.best) + "\n";
  // Print four digits of the step, so that differences of short steps do not all print as 0.0000.
  int decimals = 4;
  for (double step = answer.best.prediction.stepSeconds; step > 0 && step < 0.1 && decimals < 9; step *= 10)
    ++decimals;
  auto row = [&](double seconds, const std::string &name) {
    return fmt::format("  {:+10.{}f} s  {}\n", seconds, decimals, name);
  };
  for (const auto &[name, seconds] : answer.items)
    if (std::abs(seconds) > 0.5 * std::pow(10, -decimals))
      text += row(seconds, name);
  text += row(answer.moreSeconds, "in all");
  if (answer.lowerBoundSeconds < answer.best.prediction.stepSeconds * (1 - 1e-8))
    text += fmt::format("no plan as wished is faster than {:.4g} s, this one takes {:.4g} s\n",
                        answer.lowerBoundSeconds, answer.best.prediction.stepSeconds);
  return text;
}

} // namespace espalier::planner
