// Formats explanations as text. All numbers come from Prediction.
#include "planner/answer/explain.h"

#include "planner/model/schedule.h"
#include "planner/model/simplicity.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr double kLeastGigabytes = 100 * 0x1p20; // smaller totals use a smaller unit

// Small models use a smaller unit, so that their classes do not all print as 0.00.
struct Unit {
  double bytes;
  const char *name;
};
Unit unitOf(double bytes) { return bytes < kLeastGigabytes ? Unit{0x1p20, "MB"} : Unit{0x1p30, "GB"}; }

} // namespace

std::vector<std::pair<std::string, double>> timeEntries(const TimeBreakdown &time) {
  return {{"compute", time.compute},
          {"recompute", time.recompute},
          {"tensor parallel communication", time.communication[Axis::Tp]},
          {"context parallel communication", time.communication[Axis::Cp]},
          {"expert parallel communication", time.communication[Axis::Ep]},
          {"data parallel communication", time.communication[Axis::Dp]},
          {"pipeline communication", time.communication[Axis::Pp]},
          {"bubble", time.bubble},
          {"optimizer", time.optimizer},
          {"host transfer", time.hostTransfer}};
}

std::string describeBytes(double bytes) {
  if (bytes < 100 * 0x1p10)
    return fmt::format("{:.0f} B", bytes);
  Unit unit = unitOf(bytes);
  return fmt::format("{:.2f} {}", bytes / unit.bytes, unit.name);
}

std::string describeSeconds(double seconds, double error) {
  return fmt::format("{:.4g} s", seconds) + (error > 0 ? fmt::format(" ± {:.0f} %", 100 * error) : "");
}

std::string withoutMargin(double bytes) {
  std::string limit = describeBytes(bytes); // run files write it without a space
  std::erase(limit, ' ');
  return "max_device_memory=" + limit + ", without a margin";
}

std::string describePlan(const Plan &plan) {
  std::string text = fmt::format("dp {}, tp {}, pp {}", plan.dp, plan.tp, plan.pp);
  if (plan.cp > 1)
    text += fmt::format(", cp {}{}", plan.cp, plan.zigzag ? " in zigzag order" : "");
  if (plan.ep > 1)
    text += fmt::format(", ep {}", plan.ep);
  if (!plan.splitsExperts && plan.tp > 1)
    text += ", whole experts";
  text += fmt::format(", micro-batch {} x {}", plan.microBatchSize, plan.microBatches);
  if (plan.pp > 1)
    text += fmt::format(", {}", scheduleName(plan.schedule));
  if (plan.schedule == Schedule::Interleaved)
    text += fmt::format(" ({} virtual stages)", plan.virtualStages);
  if (plan.zero > 0)
    text += fmt::format(", zero {}", plan.zero);
  if (plan.zeroReplicas() > 1)
    text += fmt::format(" in groups of {}", plan.zeroRanks());
  if (plan.sequenceParallel)
    text += ", sequence parallel";
  if (plan.offloadOptimizer)
    text += ", optimizer offloaded";
  if (plan.offloadActivations)
    text += ", activations offloaded";
  if (plan.offloadParameters)
    text += ", parameters offloaded";
  PerRecompute<int> counts{};
  for (const StagePlan &stage : plan.stages)
    for (Recompute recompute : stage.recompute)
      ++counts[recompute];
  for (Recompute recompute : {Recompute::Selective, Recompute::Full})
    if (counts[recompute] > 0)
      text += fmt::format(", {} recompute in {} of {} layers", recomputeName(recompute), counts[recompute],
                          std::reduce(counts.begin(), counts.end()));
  if (counts[Recompute::Full] > 0 && plan.slicesInputs())
    text += ", its inputs sliced over tp";
  return text;
}

std::string describePlan(const PricedPlan &priced) {
  return describePlan(priced.plan) + (priced.executable ? "" : ", not executable yet");
}

std::string whatBinds(const Prediction &prediction) {
  std::vector<std::pair<std::string, double>> list = timeEntries(prediction.time);
  list.erase(list.begin()); // compute is not a limit
  std::sort(list.begin(), list.end(), [](const auto &a, const auto &b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::string text =
      fmt::format("compute is {:.1f} % of the step", 100 * prediction.time.compute / prediction.stepSeconds);
  for (const auto &[name, seconds] : list)
    if (seconds >= 0.0005 * prediction.stepSeconds) // skip what would print as 0.0 %
      text += fmt::format(", {} {:.1f} %", name, 100 * seconds / prediction.stepSeconds);
  auto full = [](double bytes, double limit) {
    return fmt::format("{:.1f} % full ({} of {})", 100 * bytes / limit, describeBytes(bytes), describeBytes(limit));
  };
  text += "; memory is " + full(prediction.peakBytes, prediction.memoryLimitBytes);
  if (prediction.hostPeakBytes > 0)
    text += ", host memory " + full(prediction.hostPeakBytes, prediction.hostLimitBytes);
  return text;
}

std::string wrapped(const std::string &line, size_t indent) {
  constexpr size_t columns = 100;
  std::string text, rest = line;
  auto isContinuation = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }; // takes no column
  for (;;) {
    size_t bytes = columns + static_cast<size_t>(std::ranges::count_if(rest, isContinuation));
    size_t end = rest.size() > bytes ? rest.find_last_of(",;", bytes - 1) : std::string::npos;
    if (end == std::string::npos || end <= indent)
      break;
    text += rest.substr(0, end + 1) + "\n";
    rest = std::string(indent, ' ') + rest.substr(rest.find_first_not_of(' ', end + 1));
  }
  return text + rest + "\n";
}

std::string batchLine(const Plan &plan) { return fmt::format("global batch {}\n", plan.globalBatch()); }

namespace {

// Formats how a step compares with the first row's: "2.0 x faster", "1.2 x slower", or "equal" within the error of a
// comparison.
std::string comparedWith(const PricedPlan &first, const PricedPlan &other, const ModelError &error) {
  if (&first == &other)
    return "";
  double ratio = first.prediction.stepSeconds / other.prediction.stepSeconds;
  double faster = std::max(ratio, 1 / ratio);
  if (faster <= 1 + comparisonError(error, first.plan, other.plan) || faster < 1.005)
    return "equal";
  return fmt::format("{:.{}f} x {}", faster, faster < 1.1 ? 2 : 1, ratio > 1 ? "faster" : "slower");
}

// Formats a number of bytes in a unit with one decimal at most: "16.4" or "30".
std::string inUnit(double bytes, Unit unit) {
  std::string text = fmt::format("{:.1f}", bytes / unit.bytes);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

// Returns the mark of a row: "yours", "best" or empty.
const char *markOf(size_t row, FirstPlan first) {
  if (row == 0)
    return first == FirstPlan::Best ? "best" : "yours";
  return row == 1 && first == FirstPlan::Own ? "best" : "";
}

// Each plan takes two lines: its numbers, and what it is.
std::string planTable(const SearchResult &result, FirstPlan first) {
  double peak = 0;
  for (const PricedPlan &priced : result.plans)
    peak = std::max(peak, priced.prediction.peakBytes);
  Unit unit = unitOf(peak);
  std::vector<std::string> memory;
  size_t width = 13; // of the memory column
  for (const PricedPlan &priced : result.plans) {
    const Prediction &p = priced.prediction;
    Unit ofLimit = unitOf(p.memoryLimitBytes);
    std::string name = unit.bytes == ofLimit.bytes ? "" : std::string(" ") + unit.name;
    memory.push_back(inUnit(p.peakBytes, unit) + name + "/" + inUnit(p.memoryLimitBytes, ofLimit) + " " + ofLimit.name);
    width = std::max(width, memory.back().size() + 2);
  }
  bool hasError = result.plans.front().prediction.timeError > 0;
  std::string text =
      batchLine(result.plans.front().plan) +
      fmt::format("{:7}{:18}{:13}{:>17}{:>7}{:>8}{:>15}{:>{}}\n", "", hasError ? "step time ± error" : "step time",
                  "compared", "tokens per second", "MFU", "bubble", "exposed comm.", "memory", width);
  for (size_t row = 0; row < result.plans.size(); ++row) {
    const PricedPlan &priced = result.plans[row];
    const Prediction &p = priced.prediction;
    text += fmt::format("{:7}{:17} {:13}{:17.0f}{:6.1f}%{:7.1f}%{:14.1f}%{:>{}}\n", markOf(row, first),
                        describeSeconds(p), comparedWith(result.plans.front(), priced, result.error), p.tokensPerSecond,
                        100 * p.mfu, 100 * p.bubbleShare, 100 * p.time.exposed() / p.stepSeconds, memory[row], width);
    text += wrapped("       " + describePlan(priced), 7);
  }
  return text;
}

// Formats how to use the best plan, and which plan the lines below describe.
std::string closingLine(const SearchResult &result, FirstPlan first, const std::string &howToUse) {
  bool isOwn = first != FirstPlan::Best;
  std::string text = first == FirstPlan::OwnAndBest      ? "yours is the best plan"
                     : isOwn && result.plans.size() == 1 ? std::string() // the planner finds none that fits
                                                         : howToUse;
  return (text.empty() ? "" : wrapped(text, 2)) + "the lines below describe " + (isOwn ? "yours" : "the best plan") +
         "\n";
}

std::string stageTable(const Prediction &prediction) {
  Unit unit = unitOf(prediction.peakBytes);
  bool usesHost = prediction.hostPeakBytes > 0;
  std::string text =
      fmt::format("stage  parameters gradients optimizer activations workspace buffers   total {}({} per "
                  "rank)\n",
                  usesHost ? "on host " : "", unit.name);
  for (size_t stage = 0; stage < prediction.memory.size(); ++stage) {
    const StageMemory &m = prediction.memory[stage];
    text +=
        fmt::format("{:5} {:11.2f} {:9.2f} {:9.2f} {:11.2f} {:9.2f} {:7.2f} {:7.2f}", stage, m.parameters / unit.bytes,
                    m.gradients / unit.bytes, m.optimizer / unit.bytes, m.activations / unit.bytes,
                    m.workspace / unit.bytes, m.communication / unit.bytes, m.total() / unit.bytes);
    text += usesHost ? fmt::format(" {:7.2f}\n", m.host() / unit.bytes) : "\n";
  }
  if (prediction.marginBytes > 0)
    text += fmt::format("limit {:65.2f}\nmargin {:64.2f}  left free of {:.2f} {}\n",
                        prediction.memoryLimitBytes / unit.bytes, prediction.marginBytes / unit.bytes,
                        (prediction.memoryLimitBytes + prediction.marginBytes) / unit.bytes, unit.name);
  return text;
}

int64_t countEquals(const SearchResult &result) {
  return std::ranges::count_if(result.plans, [&](const PricedPlan &plan) { return result.isEqual(plan); });
}

// Formats the certificate of the search.
std::string proofOf(const SearchStatistics &statistics) {
  return statistics.optimal ? "proved best"
                            : fmt::format("no plan is faster than {:.4g} s", statistics.lowerBoundSeconds);
}

// Formats the errors of comparisons: "5 %, the error of a comparison,", and those of plans with other axes.
std::string comparisonErrors(const ModelError &error) {
  std::string text = fmt::format("{:.0f} %, the error of a comparison,", 100 * error.comparison);
  if (error.family > error.comparison)
    text += fmt::format(" or {:.0f} % with other axes,", 100 * error.family);
  if (error.unmeasured > std::max(error.family, error.comparison))
    text += fmt::format(" or {:.0f} % with more ranks of an axis than measured,", 100 * error.unmeasured);
  return text;
}

// Formats which plans are equal, which one is chosen, and whether a faster one may exist.
std::string verdict(const SearchResult &result) {
  const Prediction &first = result.plans.front().prediction;
  const SearchStatistics &statistics = result.statistics;
  std::string text = fmt::format("{} plans played of a space of {:.3g}, ", statistics.evaluated, statistics.space);
  std::string proof = proofOf(statistics);
  if (result.error.comparison <= 0)
    return text + proof + "\n";
  int64_t equals = countEquals(result);
  text += fmt::format("the fastest takes {:.4g} s: {}\n", statistics.fastestSeconds, proof);
  if (!result.isEqual(result.plans.front()))
    text += wrapped(
        fmt::format("the first plan is {:.1f} % slower than the fastest, outside the error of a comparison ({:.0f} %)",
                    100 * (first.stepSeconds / statistics.fastestSeconds - 1),
                    100 * result.errorOf(result.plans.front().plan)),
        2);
  else if (equals > 1)
    text += wrapped(fmt::format("steps that differ by less than {} are equal: the first {}; the first is the simplest",
                                comparisonErrors(result.error), equals),
                    2);
  return text;
}

// Says what a wide gap means, with the best of the plans that are searched in full.
std::string openGap(const SearchResult &result) {
  if (!result.plain)
    return "";
  return wrapped(
      fmt::format("unequal layers on several chunks are not searched in full; a plan may be up to {:.0f} % faster; "
                  "plain 1F1B takes {}, {}, {}",
                  100 * result.statistics.gap(), describeSeconds(result.plain->prediction),
                  proofOf(result.plainStatistics), describePlan(*result.plain)),
      2);
}

} // namespace

std::string whyChosen(const SearchResult &result) {
  int64_t equals = countEquals(result);
  std::string kind =
      equals > 1 ? fmt::format("the simplest of {} plans that are as fast as the fastest", equals) : "the fastest";
  return fmt::format("{}, of {} examined; {}", kind, result.statistics.evaluated, proofOf(result.statistics));
}

std::string explainPlans(const SearchResult &result, FirstPlan first, const std::string &howToUse) {
  if (result.plans.empty()) {
    std::string text;
    for (const std::string &error : result.errors)
      text += "error: " + error + "\n";
    if (!result.binding.empty())
      text += "no plan: " + result.binding + "\n";
    for (const Relaxation &relaxation : result.relaxations)
      text += "  fits with " + relaxation.change + " (" + describeBytes(relaxation.needBytes) + " per rank)\n";
    return text;
  }
  const Prediction &best = result.plans.front().prediction;
  return planTable(result, first) + closingLine(result, first, howToUse) + stageTable(best) +
         wrapped(whatBinds(best), 2) + verdict(result) + openGap(result);
}

} // namespace espalier::planner
