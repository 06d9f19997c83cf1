#include "compiler/choose/report_plan.h"

#include "compiler/report/page.h"
#include "planner/answer/traffic.h"
#include "planner/model/layout.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace espalier {

namespace {

using Json = nlohmann::ordered_json;

constexpr double gigabyte = 0x1p30;
constexpr size_t mostEvents = 20000; ///< drawn in one timeline

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// Returns the mark of a plan.
std::string markOf(const PlanReport &report, size_t plan) {
  if (&report.result.plans[plan] == planner::answerOf(report.result, report.first))
    return "answer";
  return plan == 0 ? "yours" : "";
}

Json summary(const PlanReport &report) {
  const planner::PricedPlan &first = report.result.plans.front();
  const planner::Prediction &p = first.prediction;
  const ClusterConfig &cluster = report.run.cluster;
  std::string role = report.first == planner::FirstPlan::Best  ? "Plan: the answer"
                     : report.first == planner::FirstPlan::Own ? "Plan: the run file's own"
                                                               : "Plan: the run file's own, which is the answer";
  Json facts = {{"Model", fmt::format("{}, {:.4g} billion parameters", report.run.model.name,
                                      static_cast<double>(report.run.model.parameterCount()) / 1e9)},
                {"Machine", fmt::format("{} devices of {}, {} hosts with {} each", cluster.devices(), cluster.name,
                                        cluster.hosts, cluster.devicesPerHost)},
                {role, planner::describePlan(first)},
                {"Global batch",
                 fmt::format("{} samples of {} tokens", report.problem.globalBatch, report.problem.tokensPerSample)},
                {"Step", fmt::format("{}, {:.0f} tokens per second", planner::describeSeconds(p), p.tokensPerSecond)},
                {"Model FLOP/s utilization", percent(p.mfu)},
                {"Memory", fmt::format("{} of {} on the fullest rank; {} more are left free as a margin",
                                       planner::describeBytes(p.peakBytes), planner::describeBytes(p.memoryLimitBytes),
                                       planner::describeBytes(p.marginBytes))},
                {"What limits it", planner::whatBinds(p)},
                {"Why the answer", planner::whyChosen(report.result, report.first)}};
  return {{"type", "facts"}, {"title", "Summary"}, {"facts", facts}};
}

Json timeline(const planner::Problem &problem, const planner::Plan &plan, const std::string &whose) {
  planner::Layout layout = planner::layOut(problem, plan);
  planner::Played played = planner::play(layout.schedule, layout.seconds, /*wantTrace=*/true);
  constexpr const char *kinds[] = {"forward", "backward", "weight"};
  Json rows = Json::array(), events = Json::array();
  size_t shownOfStage = mostEvents / std::max(1, plan.pp);
  bool isCut = false;
  for (int stage = 0; stage < plan.pp; ++stage) {
    rows.push_back(fmt::format("stage {}", stage));
    const std::vector<planner::PlayedAction> &actions = played.trace[stage];
    isCut = isCut || actions.size() > shownOfStage;
    for (size_t i = 0; i < std::min(actions.size(), shownOfStage); ++i) {
      const planner::PlayedAction &action = actions[i];
      const char *kind = kinds[static_cast<int>(action.action.kind)];
      events.push_back(
          {stage, kind,
           fmt::format("{} of micro-batch {}, chunk {}", kind, action.action.microBatch, action.action.chunk),
           action.startSeconds, action.endSeconds - action.startSeconds});
    }
    double end = played.endSeconds[stage], step = layout.step[stage].total();
    double busy = layout.step[stage].compute;
    if (step - busy > 0)
      events.push_back({stage, "communication", "sums over ranks", end, step - busy});
    if (busy > 0)
      events.push_back({stage, "step", "optimizer", end + step - busy, busy});
  }
  Json section = {
      {"type", "timeline"}, {"title", fmt::format("Simulated step of {}", whose)}, {"rows", rows}, {"events", events}};
  if (isCut)
    section["text"] = fmt::format("The first {} actions of each stage; `plan --trace` writes all.", shownOfStage);
  return section;
}

Json memory(const planner::Prediction &prediction) {
  struct Part {
    const char *name;
    double planner::StageMemory::*bytes;
  };
  constexpr Part parts[] = {{"parameters", &planner::StageMemory::parameters},
                            {"gradients", &planner::StageMemory::gradients},
                            {"optimizer", &planner::StageMemory::optimizer},
                            {"activations", &planner::StageMemory::activations},
                            {"workspace", &planner::StageMemory::workspace},
                            {"buffers", &planner::StageMemory::communication},
                            {"reserved by the software", &planner::StageMemory::reserved}};
  Json rows = Json::array(), list = Json::array();
  for (size_t stage = 0; stage < prediction.memory.size(); ++stage)
    rows.push_back(fmt::format("stage {}", stage));
  for (const Part &part : parts) {
    Json values = Json::array();
    for (const planner::StageMemory &stage : prediction.memory)
      values.push_back(stage.*part.bytes / gigabyte);
    list.push_back({{"name", part.name}, {"values", values}});
  }
  return {{"type", "stacked"},
          {"title", "Memory by stage"},
          {"unit", "GB of device memory per rank"},
          {"rows", rows},
          {"parts", list},
          {"limit", prediction.memoryLimitBytes / gigabyte}};
}

Json waterfall(const PlanReport &report) {
  std::vector<std::pair<std::string, const planner::Prediction *>> plans = {
      {"", &report.result.plans.front().prediction}};
  if (report.whyNot && report.whyNot->violated.empty())
    plans = {{"the chosen plan", &report.whyNot->chosen.prediction}, {"the wish", &report.whyNot->best.prediction}};
  else if (const planner::PricedPlan *answer = planner::answerOf(report.result, report.first);
           report.first == planner::FirstPlan::Own && answer)
    plans = {{"your plan", &report.result.plans.front().prediction}, {"the answer", &answer->prediction}};
  Json items = Json::array(), series = Json::array();
  for (const auto &[name, prediction] : plans)
    series.push_back({{"name", name}, {"values", Json::array()}});
  std::vector<std::pair<std::string, double>> names = planner::timeEntries(plans[0].second->time);
  for (size_t i = 0; i < names.size(); ++i) {
    auto secondsOf = [&](const auto &plan) { return planner::timeEntries(plan.second->time)[i].second; };
    if (std::ranges::all_of(plans, [&](const auto &plan) { return secondsOf(plan) <= 0; }))
      continue;
    items.push_back(names[i].first);
    for (size_t plan = 0; plan < plans.size(); ++plan)
      series[plan]["values"].push_back(std::max(0.0, secondsOf(plans[plan])));
  }
  Json section = {{"type", "waterfall"}, {"title", "Where the time goes"}, {"items", items}, {"series", series}};
  if (report.whyNot && plans.size() > 1)
    section["text"] = planner::verdict(*report.whyNot) + "; " + planner::describePlan(report.whyNot->best);
  return section;
}

Json search(const PlanReport &report) {
  Json points = Json::array();
  const std::vector<planner::PricedPlan> &plans = report.result.plans;
  for (size_t i = 0; i < plans.size(); ++i) {
    const planner::Prediction &p = plans[i].prediction;
    points.push_back({{"x", p.peakBytes / gigabyte},
                      {"y", p.stepSeconds},
                      {"error", p.timeError},
                      {"name", planner::describePlan(plans[i])},
                      {"mark", markOf(report, i)}});
  }
  return {{"type", "scatter"},
          {"title", "Plans considered"},
          {"text", fmt::format("{} plans examined; these are the best ones of different kinds.",
                               report.result.statistics.evaluated)},
          {"x", "memory of the fullest rank (GB)"},
          {"xUnit", "GB"},
          {"y", "step (s)"},
          {"limit", plans.front().prediction.memoryLimitBytes / gigabyte},
          {"points", points}};
}

Json collectives(const PlanReport &report) {
  constexpr const char *names[] = {"pipeline (pp)", "data (dp)", "context (cp)", "experts (ep)", "tensor (tp)"};
  Json rows = Json::array();
  for (const planner::AxisTraffic &axis : planner::axisTraffic(report.problem, report.result.plans.front()))
    rows.push_back({names[static_cast<int>(axis.axis)], axis.bytes / gigabyte, axis.seconds, axis.exposed,
                    axis.seconds > 0 ? percent(std::max(0.0, 1 - axis.exposed / axis.seconds)) : "none"});
  return {{"type", "table"},
          {"title", "Communication by axis"},
          {"text", "Per step and rank, the mean over the stages. A buffer counts with its whole size."},
          {"columns", {"axis", "moved (GB)", "takes (s)", "exposed (s)", "hidden"}},
          {"rows", rows}};
}

Json planTable(const PlanReport &report) {
  Json rows = Json::array();
  for (const planner::PricedPlan &plan : report.result.plans) {
    const planner::Prediction &p = plan.prediction;
    rows.push_back({planner::describeSeconds(p), p.tokensPerSecond, percent(p.mfu), percent(p.bubbleShare),
                    fmt::format("{:.1f}/{:.1f} GB", p.peakBytes / gigabyte, p.memoryLimitBytes / gigabyte),
                    planner::describePlan(plan)});
  }
  return {{"type", "table"},
          {"title", "The plans as a table"},
          {"columns", {"step", "tokens per second", "MFU", "bubble", "memory", "plan"}},
          {"rows", rows}};
}

} // namespace

std::string planReport(const PlanReport &report) {
  const planner::PricedPlan &first = report.result.plans.front();
  planner::Plan plan = planner::pricePlan(report.problem, first.plan).plan; // with stages filled in
  std::string whose =
      report.first == planner::FirstPlan::Best ? std::string("the answer") : std::string("the run file's plan");
  Json sections = {summary(report),          timeline(report.problem, plan, whose),
                   memory(first.prediction), waterfall(report),
                   search(report),           collectives(report),
                   planTable(report)};
  return reportPage(fmt::format("{} on {} devices of {}", report.run.model.name, report.run.cluster.devices(),
                                report.run.cluster.name),
                    fmt::format("Espalier's plan for {}", report.run.file), sections);
}

} // namespace espalier
