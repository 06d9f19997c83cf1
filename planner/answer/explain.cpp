// Formats explanations as text. All numbers come from Prediction.
#include "planner/answer/explain.h"

#include "planner/answer/format.h"
#include "planner/model/schedule.h"
#include "planner/search/simplicity.h"

#include <algorithm>

namespace espalier::planner {

namespace {

constexpr double kLeastGigabytes = 100 * 0x1p20; // smaller totals use a smaller unit

double exposed(const TimeBreakdown &time) {
  return time.tensorCommunication + time.contextCommunication + time.expertCommunication + time.dataCommunication +
         time.pipelineCommunication;
}

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
          {"tensor parallel communication", time.tensorCommunication},
          {"context parallel communication", time.contextCommunication},
          {"expert parallel communication", time.expertCommunication},
          {"data parallel communication", time.dataCommunication},
          {"pipeline communication", time.pipelineCommunication},
          {"bubble", time.bubble},
          {"optimizer", time.optimizer},
          {"host transfer", time.hostTransfer}};
}

std::string describeBytes(double bytes) {
  if (bytes < 100 * 0x1p10)
    return format("%.0f B", bytes);
  Unit unit = unitOf(bytes);
  return format("%.2f %s", bytes / unit.bytes, unit.name);
}

std::string describeSeconds(double seconds, double error) {
  return format("%.4g s", seconds) + (error > 0 ? format(" ± %.0f %%", 100 * error) : "");
}

std::string withoutMargin(double bytes) {
  std::string limit = describeBytes(bytes); // run files write it without a space
  std::erase(limit, ' ');
  return "max_device_memory=" + limit + ", without a margin";
}

std::string describePlan(const Plan &plan) {
  std::string text = format("dp %d, tp %d, pp %d", plan.dp, plan.tp, plan.pp);
  if (plan.cp > 1)
    text += format(plan.zigzag ? ", cp %d in zigzag order" : ", cp %d", plan.cp);
  if (plan.ep > 1)
    text += format(", ep %d", plan.ep);
  if (!plan.splitsExperts && plan.tp > 1)
    text += ", whole experts";
  text += format(", micro-batch %lld x %lld", static_cast<long long>(plan.microBatchSize),
                 static_cast<long long>(plan.microBatches));
  if (plan.pp > 1)
    text += format(", %s", scheduleName(plan.schedule));
  if (plan.schedule == Schedule::Interleaved)
    text += format(" (%d virtual stages)", plan.virtualStages);
  if (plan.zero > 0)
    text += format(", zero %d", plan.zero);
  if (plan.zeroReplicas() > 1)
    text += format(" in groups of %d", plan.zeroRanks());
  if (plan.sequenceParallel)
    text += ", sequence parallel";
  if (plan.offloadOptimizer)
    text += ", optimizer offloaded";
  if (plan.offloadActivations)
    text += ", activations offloaded";
  if (plan.offloadParameters)
    text += ", parameters offloaded";
  int counts[3] = {}, layers = 0;
  for (const StagePlan &stage : plan.stages)
    for (Recompute recompute : stage.recompute) {
      ++counts[static_cast<int>(recompute)];
      ++layers;
    }
  for (int i = 1; i < 3; ++i)
    if (counts[i] > 0)
      text += format(", %s recompute in %d of %d layers", recomputeName(static_cast<Recompute>(i)), counts[i], layers);
  if (counts[static_cast<int>(Recompute::Full)] > 0 && plan.slicesInputs())
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
  std::string text = format("compute is %.1f %% of the step", 100 * prediction.time.compute / prediction.stepSeconds);
  for (const auto &[name, seconds] : list)
    if (seconds >= 0.0005 * prediction.stepSeconds) // skip what would print as 0.0 %
      text += format(", %s %.1f %%", name.c_str(), 100 * seconds / prediction.stepSeconds);
  auto full = [](double bytes, double limit) {
    return format("%.1f %% full (%s of %s)", 100 * bytes / limit, describeBytes(bytes).c_str(),
                  describeBytes(limit).c_str());
  };
  text += "; memory is " + full(prediction.peakBytes, prediction.memoryLimitBytes);
  if (prediction.hostPeakBytes > 0)
    text += ", host memory " + full(prediction.hostPeakBytes, prediction.hostLimitBytes);
  return text;
}

std::string batchLine(const Plan &plan) {
  return format("global batch %lld\n", static_cast<long long>(plan.globalBatch()));
}

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
  return format(faster < 1.1 ? "%.2f x %s" : "%.1f x %s", faster, ratio > 1 ? "faster" : "slower");
}

// Formats a number of bytes in a unit with one decimal at most: "16.4" or "30".
std::string inUnit(double bytes, Unit unit) {
  std::string text = format("%.1f", bytes / unit.bytes);
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
  bool hasError = result.plans.front().prediction.timeError > 0;
  std::string text =
      batchLine(result.plans.front().plan) + format("%-7s%-*s%-13s%17s%7s%8s%15s%13s\n", "", 18 + hasError,
                                                    hasError ? "step time ± error" : "step time", "compared",
                                                    "tokens per second", "MFU", "bubble", "exposed comm.", "memory");
  for (size_t row = 0; row < result.plans.size(); ++row) {
    const PricedPlan &priced = result.plans[row];
    const Prediction &p = priced.prediction;
    std::string time = describeSeconds(p);
    size_t width = 18 + hasError; // the ± sign has two bytes and one column
    time.append(time.size() < width ? width - time.size() : 1, ' ');
    text += format("%-7s%s%-13s%17.0f%6.1f%%%7.1f%%%14.1f%%%13s\n", markOf(row, first), time.c_str(),
                   comparedWith(result.plans.front(), priced, result.error).c_str(), p.tokensPerSecond, 100 * p.mfu,
                   100 * p.bubbleShare, 100 * exposed(p.time) / p.stepSeconds,
                   (inUnit(p.peakBytes, unit) + "/" + inUnit(p.memoryLimitBytes, unit) + " " + unit.name).c_str());
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
  std::string text = format("stage  parameters gradients optimizer activations workspace buffers   total %s(%s per "
                            "rank)\n",
                            usesHost ? "on host " : "", unit.name);
  for (size_t stage = 0; stage < prediction.memory.size(); ++stage) {
    const StageMemory &m = prediction.memory[stage];
    text += format("%5zu %11.2f %9.2f %9.2f %11.2f %9.2f %7.2f %7.2f", stage, m.parameters / unit.bytes,
                   m.gradients / unit.bytes, m.optimizer / unit.bytes, m.activations / unit.bytes,
                   m.workspace / unit.bytes, m.communication / unit.bytes, m.total() / unit.bytes);
    text += usesHost ? format(" %7.2f\n", m.host() / unit.bytes) : "\n";
  }
  if (prediction.marginBytes > 0)
    text += format("limit %65.2f\nmargin %64.2f  left free of %.2f %s\n", prediction.memoryLimitBytes / unit.bytes,
                   prediction.marginBytes / unit.bytes,
                   (prediction.memoryLimitBytes + prediction.marginBytes) / unit.bytes, unit.name);
  return text;
}

int64_t countEquals(const SearchResult &result) {
  return std::ranges::count_if(result.plans, [&](const PricedPlan &plan) { return result.isEqual(plan); });
}

// Formats the certificate of the search.
std::string proofOf(const SearchStatistics &statistics) {
  return statistics.optimal ? "proved best" : format("no plan is faster than %.4g s", statistics.lowerBoundSeconds);
}

// Formats the errors of comparisons: "5 %, the error of a comparison,", and those of plans with other axes.
std::string comparisonErrors(const ModelError &error) {
  std::string text = format("%.0f %%, the error of a comparison,", 100 * error.comparison);
  if (error.family > error.comparison)
    text += format(" or %.0f %% with other axes,", 100 * error.family);
  if (error.unmeasured > std::max(error.family, error.comparison))
    text += format(" or %.0f %% with more ranks of an axis than measured,", 100 * error.unmeasured);
  return text;
}

// Formats which plans are equal, which one is chosen, and whether a faster one may exist.
std::string verdict(const SearchResult &result) {
  const Prediction &first = result.plans.front().prediction;
  const SearchStatistics &statistics = result.statistics;
  std::string text =
      format("%lld plans played of a space of %.3g, ", static_cast<long long>(statistics.evaluated), statistics.space);
  std::string proof = proofOf(statistics);
  if (result.error.comparison <= 0)
    return text + proof + "\n";
  int64_t equals = countEquals(result);
  text += format("the fastest takes %.4g s: %s\n", statistics.fastestSeconds, proof.c_str());
  if (!result.isEqual(result.plans.front()))
    text +=
        wrapped(format("the first plan is %.1f %% slower than the fastest, outside the error of a comparison (%.0f %%)",
                       100 * (first.stepSeconds / statistics.fastestSeconds - 1),
                       100 * result.errorOf(result.plans.front().plan)),
                2);
  else if (equals > 1)
    text += wrapped(format("steps that differ by less than %s are equal: the first %lld; the first is the simplest",
                           comparisonErrors(result.error).c_str(), static_cast<long long>(equals)),
                    2);
  return text;
}

// Says what a wide gap means, with the best of the plans that are searched in full.
std::string openGap(const SearchResult &result) {
  if (!result.plain)
    return "";
  return wrapped(
      format("unequal layers on several chunks are not searched in full; a plan may be up to %.0f %% faster; "
             "plain 1F1B takes %s, %s, ",
             100 * result.statistics.gap(), describeSeconds(result.plain->prediction).c_str(),
             proofOf(result.plainStatistics).c_str()) +
          describePlan(*result.plain),
      2);
}

} // namespace

std::string whyChosen(const SearchResult &result) {
  int64_t equals = countEquals(result);
  std::string text =
      equals > 1 ? format("the simplest of %lld plans that are as fast as the fastest", static_cast<long long>(equals))
                 : std::string("the fastest");
  return text + format(", of %lld examined; %s", static_cast<long long>(result.statistics.evaluated),
                       proofOf(result.statistics).c_str());
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
