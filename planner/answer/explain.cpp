// Formats explanations as text. All numbers come from Prediction.
#include "planner/answer/explain.h"

#include "planner/answer/format.h"
#include "planner/model/schedule.h"

#include <algorithm>

namespace espalier::planner {

namespace {

constexpr double kLeastGigabytes = 100 * 0x1p20; // smaller totals use a smaller unit

double exposed(const TimeBreakdown &time) {
  return time.tensorCommunication + time.contextCommunication + time.expertCommunication + time.dataCommunication +
         time.pipelineCommunication;
}

// Breaks a line after commas and semicolons at 100 columns. Continuation lines are indented.
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
    text += format(", cp %d", plan.cp);
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

std::string planTable(const std::vector<PricedPlan> &plans) {
  double peak = 0;
  for (const PricedPlan &priced : plans)
    peak = std::max(peak, priced.prediction.peakBytes);
  Unit unit = unitOf(peak);
  bool hasError = plans.front().prediction.timeError > 0;
  int width = hasError ? 14 : 9;
  std::string text =
      batchLine(plans.front().plan) + format("%*s tokens/s    MFU bubble exposed memory %s  plan\n", width + hasError,
                                             hasError ? "step s ± error" : "step s", unit.name);
  for (const PricedPlan &priced : plans) {
    const Prediction &p = priced.prediction;
    // The ± sign has two bytes and one column.
    std::string line =
        hasError ? format("%*s", width + 1, describeSeconds(p).c_str()) : format("%*.4g", width, p.stepSeconds);
    line += format(" %8.0f %5.1f%% %5.1f%% %6.1f%% %9.1f  ", p.tokensPerSecond, 100 * p.mfu, 100 * p.bubbleShare,
                   100 * exposed(p.time) / p.stepSeconds, p.peakBytes / unit.bytes);
    text += wrapped(line + describePlan(priced), line.size() - hasError);
  }
  return text;
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

// Formats which plans are equal, which one is chosen, and whether a faster one may exist.
std::string verdict(const SearchResult &result) {
  const Prediction &first = result.plans.front().prediction;
  const SearchStatistics &statistics = result.statistics;
  std::string text =
      format("%lld plans played of a space of %.3g, ", static_cast<long long>(statistics.evaluated), statistics.space);
  std::string proof =
      statistics.optimal ? "proved best" : format("no plan is faster than %.4g s", statistics.lowerBoundSeconds);
  double comparison = result.error.comparison;
  if (comparison <= 0)
    return text + proof + "\n";
  auto isEqual = [&](const PricedPlan &plan) {
    return result.error.isEqual(plan.prediction.stepSeconds, statistics.fastestSeconds);
  };
  auto equals = std::ranges::count_if(result.plans, isEqual);
  text += format("the fastest takes %.4g s: %s\n", statistics.fastestSeconds, proof.c_str());
  if (!isEqual(result.plans.front()))
    text +=
        wrapped(format("the first plan is %.1f %% slower than the fastest, outside the error of a comparison (%.0f %%)",
                       100 * (first.stepSeconds / statistics.fastestSeconds - 1), 100 * comparison),
                2);
  else if (equals > 1)
    text += wrapped(
        format("steps that differ by less than %.0f %%, the error of a comparison, are equal: the first %lld; the "
               "first is the simplest",
               100 * comparison, static_cast<long long>(equals)),
        2);
  return text;
}

} // namespace

std::string explainPlans(const SearchResult &result) {
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
  return planTable(result.plans) + stageTable(best) + wrapped(whatBinds(best), 2) + verdict(result);
}

} // namespace espalier::planner
