// Formats explanations as text. All numbers come from Prediction.
#include "planner/answer/explain.h"

#include "planner/answer/compare.h"
#include "planner/model/schedule.h"
#include "planner/model/simplicity.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
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
  if (plan.expertsOverContext && plan.cp > 1)
    text += ", experts over cp";
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

std::string headline(const Problem &problem) {
  const Machine &machine = problem.machine;
  return wrapped(
      fmt::format("{}, {:.4g} billion parameters; {} devices of {} ({} hosts with {} each); software {}; global "
                  "batch {} of {} tokens",
                  problem.name, problem.parameters / 1e9, machine.devices(), machine.name, machine.hosts,
                  machine.devicesPerHost, problem.software.name, problem.globalBatch, problem.tokensPerSample),
      2);
}

std::vector<size_t> rowsByTime(const std::vector<PricedPlan> &plans) {
  std::vector<size_t> rows(plans.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::ranges::stable_sort(rows, {}, [&](size_t row) { return plans[row].prediction.stepSeconds; });
  return rows;
}

const PricedPlan *answerOf(const SearchResult &result, FirstPlan first) {
  size_t place = first == FirstPlan::Own ? 1 : 0;
  return place < result.plans.size() ? &result.plans[place] : nullptr;
}

namespace {

// Formats a number of bytes in a unit with one decimal at most: "16.4" or "30".
std::string inUnit(double bytes, Unit unit) {
  std::string text = fmt::format("{:.1f}", bytes / unit.bytes);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

// Returns the memory column of the plans.
std::vector<std::string> memoryColumn(const std::vector<PricedPlan> &plans) {
  double peak = 0;
  for (const PricedPlan &priced : plans)
    peak = std::max(peak, priced.prediction.peakBytes);
  Unit unit = unitOf(peak);
  std::vector<std::string> column;
  for (const PricedPlan &priced : plans) {
    const Prediction &p = priced.prediction;
    Unit ofLimit = unitOf(p.memoryLimitBytes);
    std::string name = unit.bytes == ofLimit.bytes ? "" : std::string(" ") + unit.name;
    column.push_back(inUnit(p.peakBytes, unit) + name + "/" + inUnit(p.memoryLimitBytes, ofLimit) + " " + ofLimit.name);
  }
  return column;
}

// Prints the plans by ascending time. Each plan takes two lines: its numbers, and what it is.
std::string planTable(const SearchResult &result, FirstPlan first) {
  const std::vector<PricedPlan> &plans = result.plans;
  const PricedPlan *answer = answerOf(result, first);
  std::vector<std::string> memory = memoryColumn(plans);
  size_t width = 13;
  for (const std::string &text : memory)
    width = std::max(width, text.size() + 2);
  bool hasError = plans.front().prediction.timeError > 0;
  std::string text =
      fmt::format("{:7}{:18}{:20}{:>10}{:>7}{:>8}{:>15}{:>{}}\n", "", hasError ? "step time ± error" : "step time",
                  "difference", "tokens/s", "MFU", "bubble", "exposed comm.", "memory", width);
  for (size_t row : rowsByTime(plans)) {
    const PricedPlan &priced = plans[row];
    const Prediction &p = priced.prediction;
    bool isOwn = row == 0 && first != FirstPlan::Best;
    bool isCompared = answer && &priced != answer;
    text += fmt::format("{:7}{:17} {:19} {:10.0f}{:6.1f}%{:7.1f}%{:14.1f}%{:>{}}\n",
                        &priced == answer ? "answer"
                        : isOwn           ? "yours"
                                          : "",
                        describeSeconds(p), isCompared ? describe(compare(result.error, *answer, priced)) : "",
                        p.tokensPerSecond, 100 * p.mfu, 100 * p.bubbleShare, 100 * p.time.exposed() / p.stepSeconds,
                        memory[row], width);
    text += wrapped("       " + describePlan(priced) + (p.fits() ? "" : ", does not fit"), 7);
  }
  if (answer && plans.size() > 1 && result.error.comparison > 0)
    text += "difference: to the answer; same: its 80 % interval contains zero; faster: the probability of it\n";
  return text;
}

// Formats how to use the answer, and which plan the lines below describe.
std::string closingLine(const SearchResult &result, FirstPlan first, const std::string &howToUse) {
  bool isOwn = first != FirstPlan::Best;
  std::string text = first == FirstPlan::OwnAndBest ? "your plan is the answer"
                     : answerOf(result, first)      ? howToUse
                                                    : std::string(); // the planner finds none that fits
  return (text.empty() ? "" : wrapped(text, 2)) + "the lines below describe " + (isOwn ? "your plan" : "the answer") +
         "\n";
}

// Prints the memory of the stages by class. Neighbouring stages whose lines are equal share one.
std::string stageTable(const Prediction &prediction) {
  Unit unit = unitOf(prediction.peakBytes);
  bool usesHost = prediction.hostPeakBytes > 0;
  std::string text =
      fmt::format("stage  parameters gradients optimizer activations workspace buffers   total {}({} per "
                  "rank)\n",
                  usesHost ? "on host " : "", unit.name);
  std::vector<std::string> lines;
  for (const StageMemory &m : prediction.memory) {
    lines.push_back(fmt::format(" {:11.2f} {:9.2f} {:9.2f} {:11.2f} {:9.2f} {:7.2f} {:7.2f}", m.parameters / unit.bytes,
                                m.gradients / unit.bytes, m.optimizer / unit.bytes, m.activations / unit.bytes,
                                m.workspace / unit.bytes, m.communication / unit.bytes, m.total() / unit.bytes) +
                    (usesHost ? fmt::format(" {:7.2f}", m.host() / unit.bytes) : ""));
  }
  for (size_t stage = 0, next = 0; stage < lines.size(); stage = next) {
    while (next < lines.size() && lines[next] == lines[stage])
      ++next;
    text += fmt::format("{:>5}", next == stage + 1 ? std::to_string(stage) : fmt::format("{}-{}", stage, next - 1)) +
            lines[stage] + "\n";
  }
  if (prediction.marginBytes > 0)
    text += fmt::format("limit {:65.2f}\nmargin {:64.2f}  left free of {:.2f} {}\n",
                        prediction.memoryLimitBytes / unit.bytes, prediction.marginBytes / unit.bytes,
                        (prediction.memoryLimitBytes + prediction.marginBytes) / unit.bytes, unit.name);
  return text;
}

// Formats the certificate of the search.
std::string proofOf(const SearchStatistics &statistics) {
  return statistics.optimal ? "proved best"
                            : fmt::format("no plan is faster than {:.4g} s", statistics.lowerBoundSeconds);
}

// Formats the size of the search and its certificate.
std::string verdict(const SearchStatistics &statistics) {
  return fmt::format("{} plans played of a space of {:.3g}, the fastest takes {:.4g} s: {}\n", statistics.evaluated,
                     statistics.space, statistics.fastestSeconds, proofOf(statistics));
}

// Formats what a plan has that makes it less simple than another one: "a pipeline and a full memory".
std::string moreThan(const PricedPlan &plan, const PricedPlan &other) {
  std::vector<std::string> more = complexitiesOf(plan), known = complexitiesOf(other);
  std::erase_if(more, [&](const std::string &word) { return std::ranges::find(known, word) != known.end(); });
  return fmt::format("{}", fmt::join(more, " and "));
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

std::string whyChosen(const SearchResult &result, FirstPlan first) {
  const PricedPlan *answer = answerOf(result, first);
  if (!answer)
    return "";
  auto slower = [&](const PricedPlan &plan, const PricedPlan &other) {
    return 100 * (plan.prediction.stepSeconds / other.prediction.stepSeconds - 1);
  };
  auto fastest = std::ranges::min_element(result.plans.begin() + (first == FirstPlan::Own), result.plans.end(), {},
                                          [](const PricedPlan &plan) { return plan.prediction.stepSeconds; });
  std::string text = "the fastest plan";
  if (double percent = slower(*answer, *fastest); percent >= 0.05) {
    std::string more = moreThan(*fastest, *answer);
    text = fmt::format("the simplest plan within {:.0f} % of the fastest, which takes {:.1f} % less{}",
                       100 * result.preferSimple, 100 * percent / (100 + percent), more.empty() ? "" : " with " + more);
  }
  if (result.simpler)
    text += fmt::format("; the next simpler plan takes {:.1f} % more: {}", slower(*result.simpler, *answer),
                        describePlan(*result.simpler));
  else if (result.preferSimple > 0)
    text += "; no simpler plan is nearly as fast";
  return text;
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
  return planTable(result, first) + wrapped("why: " + whyChosen(result, first), 2) +
         closingLine(result, first, howToUse) + stageTable(best) + wrapped(whatBinds(best), 2) +
         verdict(result.statistics) + openGap(result);
}

} // namespace espalier::planner
