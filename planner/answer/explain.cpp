// Text for people; every number comes from Prediction.
#include "planner/answer/explain.h"

#include "planner/model/schedule.h"
#include "planner/search/stage_options.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace espalier::planner {

namespace {

constexpr double kLeastGigabytes = 100 * 0x1p20; // below, bytes are told in a smaller unit

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char *pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

// The entries of a breakdown with their names, in a fixed order; they sum to the step.
std::vector<std::pair<std::string, double>> entries(const TimeBreakdown &time) {
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

double exposed(const TimeBreakdown &time) {
  return time.tensorCommunication + time.contextCommunication + time.expertCommunication + time.dataCommunication +
         time.pipelineCommunication;
}

// Breaks a line behind commas and semicolons at what a terminal or a page has; what follows is indented.
std::string wrapped(const std::string &line, size_t indent) {
  constexpr size_t columns = 100;
  std::string text, rest = line;
  while (rest.size() > columns) {
    size_t end = rest.find_last_of(",;", columns - 1);
    if (end == std::string::npos || end <= indent)
      break;
    text += rest.substr(0, end + 1) + "\n";
    rest = std::string(indent, ' ') + rest.substr(rest.find_first_not_of(' ', end + 1));
  }
  return text + rest + "\n";
}

// Small models are told in a smaller unit, so that their classes are not all 0.00.
struct Unit {
  double bytes;
  const char *name;
};
Unit unitOf(double bytes) { return bytes < kLeastGigabytes ? Unit{0x1p20, "MB"} : Unit{0x1p30, "GB"}; }

} // namespace

std::string describeBytes(double bytes) {
  if (bytes < 100 * 0x1p10)
    return format("%.0f B", bytes);
  Unit unit = unitOf(bytes);
  return format("%.2f %s", bytes / unit.bytes, unit.name);
}

std::string withoutMargin(double bytes) {
  std::string limit = describeBytes(bytes); // as a run file has it
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
  std::vector<std::pair<std::string, double>> list = entries(prediction.time);
  list.erase(list.begin()); // compute is what is wanted
  std::sort(list.begin(), list.end(), [](const auto &a, const auto &b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::string text = format("compute is %.1f %% of the step", 100 * prediction.time.compute / prediction.stepSeconds);
  for (const auto &[name, seconds] : list)
    if (seconds >= 0.0005 * prediction.stepSeconds) // what is not 0.0 %
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

namespace {

// All plans that are compared have the same one.
std::string batchLine(const Plan &plan) {
  return format("global batch %lld\n", static_cast<long long>(plan.globalBatch()));
}

std::string planTable(const std::vector<PricedPlan> &plans) {
  double peak = 0;
  for (const PricedPlan &priced : plans)
    peak = std::max(peak, priced.prediction.peakBytes);
  Unit unit = unitOf(peak);
  std::string text = batchLine(plans.front().plan) +
                     format("   step s   tokens/s    MFU  bubble  exposed  memory %s  plan\n", unit.name);
  for (const PricedPlan &priced : plans) {
    const Prediction &p = priced.prediction;
    std::string line =
        format("%9.4g %10.0f %5.1f%% %6.1f%% %7.1f%% %10.1f  ", p.stepSeconds, p.tokensPerSecond, 100 * p.mfu,
               100 * p.bubbleShare, 100 * exposed(p.time) / p.stepSeconds, p.peakBytes / unit.bytes);
    text += wrapped(line + describePlan(priced), line.size());
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
  std::string text = planTable(result.plans) + stageTable(best) + wrapped(whatBinds(best), 2);
  text += format("%lld plans played of a space of %.3g, %s\n", static_cast<long long>(result.statistics.evaluated),
                 result.statistics.space,
                 result.statistics.optimal
                     ? "proved best"
                     : format("no plan is faster than %.4g s", result.statistics.lowerBoundSeconds).c_str());
  return text;
}

WhyNot whyNot(const Problem &problem, const SearchResult &solved, const Pins &wish, const SearchOptions &options) {
  const PricedPlan &chosen = solved.plans.front();
  Problem wished = problem;
  wished.pins = problem.pins.with(wish);
  SearchOptions one = options;
  one.alternatives = 0;
  one.relax = one.prove = false; // an answer at once, within the gap of the bounds
  bool isAsWished = chosen.prediction.fits() && wished.pins.hold(chosen.plan);
  WhyNot answer;
  if (isAsWished) {
    answer.best = chosen;
    answer.lowerBoundSeconds = solved.statistics.lowerBoundSeconds;
  }
  // A plan that the user pinned may be as wished without being the best such plan.
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
  std::vector<std::pair<std::string, double>> before = entries(chosen.prediction.time);
  for (auto &[name, seconds] : entries(answer.best.prediction.time)) {
    double more = seconds - before[answer.items.size()].second;
    answer.items.emplace_back(name, more);
  }
  answer.moreSeconds = answer.best.prediction.stepSeconds - chosen.prediction.stepSeconds;
  return answer;
}

std::string printWhyNot(const WhyNot &answer) {
  std::string text;
  for (const std::string &reason : answer.violated)
    text += reason + "\n";
  if (!answer.violated.empty())
    return text;
  text = batchLine(answer.best.plan) + describePlan(answer.best) + "\n";
  // Four digits of the step, so that differences of short steps are not all 0.0000.
  int decimals = 4;
  for (double step = answer.best.prediction.stepSeconds; step > 0 && step < 0.1 && decimals < 9; step *= 10)
    ++decimals;
  auto row = [&](double seconds, const std::string &name) {
    return format("  %+10.*f s  %s\n", decimals, seconds, name.c_str());
  };
  for (const auto &[name, seconds] : answer.items)
    if (std::abs(seconds) > 0.5 * std::pow(10, -decimals))
      text += row(seconds, name);
  text += row(answer.moreSeconds, "in all");
  if (answer.lowerBoundSeconds < answer.best.prediction.stepSeconds * (1 - 1e-8))
    text += format("no plan as wished is faster than %.4g s, this one takes %.4g s\n", answer.lowerBoundSeconds,
                   answer.best.prediction.stepSeconds);
  return text;
}

namespace {

/// A slice of the trace. Both ends are rounded to nanoseconds: slices that follow each other must not overlap, viewers
/// drop those that do.
std::string traceSlice(int stage, int track, const std::string &name, double startSeconds, double endSeconds) {
  auto start = std::llround(1e9 * startSeconds), duration = std::llround(1e9 * endSeconds) - start;
  return format(",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%lld.%03lld,\"dur\":%lld.%03lld}", stage,
                track, name.c_str(), start / 1000, start % 1000, duration / 1000, duration % 1000);
}

} // namespace

std::string traceJson(const Problem &problem, const Plan &given) {
  PricedPlan priced = pricePlan(problem, given);
  const Plan &plan = priced.plan;
  CostTable table = buildCostTable(problem, plan);
  ScheduleTable schedule =
      buildSchedule(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
  std::vector<ChunkSeconds> chunks;
  for (size_t chunk = 0; chunk < plan.stages.size(); ++chunk) {
    StageContent content;
    content.layers.resize(problem.kinds.size());
    const StagePlan &stage = plan.stages[chunk];
    for (int i = 0; i < stage.layers; ++i)
      ++content.layers[table.layerKinds[stage.firstLayer + i]][static_cast<int>(stage.recompute[i])];
    ChunkSeconds layers = chunkSeconds(table, content);
    ChunkSeconds edge = edgeSeconds(table, static_cast<int>(chunk), plan.pp, schedule.chunksPerStage, schedule.vShape);
    chunks.push_back({layers.forward + edge.forward, layers.backward + edge.backward, layers.weight + edge.weight});
  }
  Played played = play(schedule, chunks, /*wantTrace=*/true);
  static constexpr const char *names[] = {"F", "B", "W"};
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char *separator = "";
  for (int stage = 0; stage < plan.pp; ++stage) {
    text += format("%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"stage %d\"}}",
                   separator, stage, stage);
    separator = ",";
    for (const auto &[track, stream] : {std::pair(0, "micro-batches"), std::pair(1, "once per step")})
      text += format(",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                     stage, track, stream);
    for (const PlayedAction &action : played.trace[stage])
      text += traceSlice(
          stage, 0,
          format("%s%d.%d", names[static_cast<int>(action.action.kind)], action.action.microBatch, action.action.chunk),
          action.startSeconds, action.endSeconds);
    double end = played.endSeconds[stage];
    StageContent content;
    content.layers.resize(problem.kinds.size());
    content.embed = stage == 0;
    content.head = schedule.vShape ? stage == 0 : stage == plan.pp - 1;
    for (size_t chunk = 0; chunk < plan.stages.size(); ++chunk)
      if (stageOfChunk(static_cast<int>(chunk), plan.pp, schedule.chunksPerStage, schedule.vShape) == stage)
        for (int i = 0; i < plan.stages[chunk].layers; ++i)
          ++content.layers[table.layerKinds[plan.stages[chunk].firstLayer + i]][0];
    text += traceSlice(stage, 1, "step", end, end + stepPhase(table, content).total());
  }
  return text + "\n]}\n";
}

} // namespace espalier::planner
