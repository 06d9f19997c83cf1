#include "compiler/choose/print_plan.h"

#include "planner/answer/explain.h"
#include "planner/model/schedule.h"

#include <nlohmann/json.hpp>

namespace espalier {

namespace {

using Json = nlohmann::ordered_json;

/// Returns "none", "selective" or "full" if all layers have the same policy, else "mixed".
std::string recomputeOf(const planner::Plan &plan) {
  std::string common;
  for (const planner::StagePlan &stage : plan.stages)
    for (planner::Recompute recompute : stage.recompute) {
      std::string name = planner::recomputeName(recompute);
      if (!common.empty() && common != name)
        return "mixed";
      common = name;
    }
  return common.empty() ? "none" : common;
}

Json planAsJson(const planner::PricedPlan &priced) {
  const planner::Plan &plan = priced.plan;
  Json json = {{"dp", plan.dp},
               {"tp", plan.tp},
               {"pp", plan.pp},
               {"cp", plan.cp},
               {"ep", plan.ep},
               {"zero", plan.zero},
               {"sequence_parallel", plan.sequenceParallel},
               {"vocab_parallel", plan.vocabParallel},
               {"micro_batch_size", plan.microBatchSize},
               {"micro_batches", plan.microBatches},
               {"virtual_stages", plan.virtualStages},
               {"schedule", planner::scheduleName(plan.schedule)},
               {"recompute", recomputeOf(plan)},
               {"offload_optimizer", plan.offloadOptimizer},
               {"offload_activations", plan.offloadActivations},
               {"offload_parameters", plan.offloadParameters}};
  if (plan.zeroReplicas() > 1)
    json["zero_group"] = plan.zeroRanks();
  if (plan.hasTwoRuns())
    json["zigzag"] = true;
  if (!plan.splitsExperts)
    json["expert_tensor_parallel"] = false;
  if (plan.expertsOverContext)
    json["experts_over_context"] = true;
  json["stages"] = Json::array();
  for (const planner::StagePlan &stage : plan.stages) {
    Json recompute = Json::array();
    for (planner::Recompute policy : stage.recompute)
      recompute.push_back(planner::recomputeName(policy));
    json["stages"].push_back({{"first_layer", stage.firstLayer}, {"layers", stage.layers}, {"recompute", recompute}});
  }
  json["executable"] = priced.executable;
  return json;
}

Json predictionAsJson(const planner::Prediction &prediction) {
  Json memory = Json::array(), host = Json::array(), classes = Json::array();
  for (const planner::StageMemory &stage : prediction.memory) {
    memory.push_back(stage.total());
    host.push_back(stage.host());
    classes.push_back({{"parameters", stage.parameters},
                       {"gradients", stage.gradients},
                       {"optimizer", stage.optimizer},
                       {"activations", stage.activations},
                       {"workspace", stage.workspace},
                       {"buffers", stage.communication},
                       {"reserved", stage.reserved},
                       {"host_parameters", stage.hostParameters},
                       {"host_gradients", stage.hostGradients},
                       {"host_optimizer", stage.hostOptimizer},
                       {"host_activations", stage.hostActivations}});
  }
  const planner::TimeBreakdown &time = prediction.time;
  return {{"step_seconds", prediction.stepSeconds},
          {"error", prediction.timeError},
          {"interval", prediction.interval()},
          {"tokens_per_second", prediction.tokensPerSecond},
          {"mfu", prediction.mfu},
          {"memory_bytes", memory},
          {"memory_limit_bytes", prediction.memoryLimitBytes},
          {"memory_margin_bytes", prediction.marginBytes},
          {"memory_classes", classes},
          {"host_memory_bytes", host},
          {"host_memory_limit_bytes", prediction.hostLimitBytes},
          {"bubble_share", prediction.bubbleShare},
          {"seconds",
           {{"compute", time.compute},
            {"recompute", time.recompute},
            {"tensor_communication", time.communication[planner::Axis::Tp]},
            {"context_communication", time.communication[planner::Axis::Cp]},
            {"expert_communication", time.communication[planner::Axis::Ep]},
            {"data_communication", time.communication[planner::Axis::Dp]},
            {"pipeline_communication", time.communication[planner::Axis::Pp]},
            {"bubble", time.bubble},
            {"optimizer", time.optimizer},
            {"host_transfer", time.hostTransfer}}},
          {"binds", planner::whatBinds(prediction)}};
}

Json whatIfAsJson(const planner::WhatIf &answer) {
  return {{"devices_before", answer.devicesBefore},
          {"devices_after", answer.devicesAfter},
          {"idle_devices", answer.idleDevices},
          {"plan_before", planAsJson(answer.before)},
          {"predicted_before", predictionAsJson(answer.before.prediction)},
          {"plan_after", planAsJson(answer.after)},
          {"predicted_after", predictionAsJson(answer.after.prediction)},
          {"step_seconds_ratio", answer.stepRatio()},
          {"tokens_per_second_ratio", answer.tokenRateRatio()},
          {"device_seconds_per_token_ratio", answer.costRatio()}};
}

} // namespace

std::string planJson(const RunConfig &run, const planner::Problem &problem, const planner::SearchResult &result,
                     planner::FirstPlan first, const planner::WhatIf *comparison) {
  bool found = !result.plans.empty();
  Json json = {{"schema", 1},
               {"model", {{"name", run.model.name}, {"parameters", run.model.parameterCount()}}},
               {"system", run.system.name},
               {"software", run.system.name},
               {"machine",
                {{"name", run.cluster.name},
                 {"hosts", run.cluster.hosts},
                 {"devices_per_host", run.cluster.devicesPerHost},
                 {"devices", run.cluster.devices()}}},
               {"sequence", problem.tokensPerSample},
               {"why", planner::whyChosen(result, first)},
               {"interval", nullptr},
               {"error", problem.error.time},
               {"comparison_error", problem.error.comparison},
               {"family_error", problem.error.family},
               {"unmeasured_error", problem.error.unmeasured},
               {"matmul_format", nullptr},
               {"plan", nullptr},
               {"global_batch", problem.globalBatch},
               {"predicted", nullptr}};
  if (const planner::MatmulFormat &format = problem.matmulFormat; !format.name.empty())
    json["matmul_format"] = {{"name", format.name},
                             {"gain", format.gain},
                             {"flops_per_second", problem.machine.peakFlops * problem.machine.matmulEfficiency}};
  if (found) {
    json["plan"] = planAsJson(result.plans.front());
    json["predicted"] = predictionAsJson(result.plans.front().prediction);
    json["interval"] = result.plans.front().prediction.interval();
  }
  const planner::SearchStatistics &statistics = result.statistics;
  json["search"] = {{"space", statistics.space},
                    {"configs", statistics.configs},
                    {"too_large", statistics.tooLarge},
                    {"examined", statistics.examined},
                    {"evaluated", statistics.evaluated},
                    {"seconds", statistics.seconds},
                    {"fastest_seconds", statistics.fastestSeconds},
                    {"lower_bound_seconds", statistics.lowerBoundSeconds},
                    {"optimal", statistics.optimal}};
  json["plain"] = nullptr;
  if (result.plain)
    json["plain"] = {{"plan", planAsJson(*result.plain)},
                     {"predicted", predictionAsJson(result.plain->prediction)},
                     {"lower_bound_seconds", result.plainStatistics.lowerBoundSeconds},
                     {"optimal", result.plainStatistics.optimal}};
  json["alternatives"] = Json::array();
  for (size_t row : planner::rowsByTime(result.plans)) {
    const planner::PricedPlan &plan = result.plans[row], *answer = planner::answerOf(result, first);
    if (row == 0)
      continue;
    planner::Comparison comparison = planner::compare(result.error, answer ? *answer : result.plans.front(), plan);
    json["alternatives"].push_back({{"plan", planAsJson(plan)},
                                    {"predicted", predictionAsJson(plan.prediction)},
                                    {"answer", &plan == answer},
                                    {"equal", comparison.isSame()},
                                    {"difference", comparison.difference},
                                    {"probability_faster", comparison.probabilityFaster()},
                                    {"reason", planner::describe(comparison)}});
  }
  json["rejected"] = Json::array();
  if (!found && !result.binding.empty()) {
    Json rejected = {{"reason", result.binding}};
    if (!result.nearest.plan.stages.empty()) {
      rejected["plan"] = planAsJson(result.nearest);
      rejected["predicted"] = predictionAsJson(result.nearest.prediction);
    }
    json["rejected"].push_back(rejected);
  }
  json["errors"] = result.errors;
  json["binding"] = result.binding;
  json["relaxations"] = Json::array();
  for (const planner::Relaxation &relaxation : result.relaxations)
    json["relaxations"].push_back({{"change", relaxation.change}, {"need_bytes", relaxation.needBytes}});
  if (comparison) {
    json["what_if"] = whatIfAsJson(*comparison);
    if (std::optional<planner::WhatIf> best = comparison->ofBest())
      json["what_if"]["best"] = whatIfAsJson(*best);
  }
  return json.dump(2);
}

std::string compiledJson(const CompiledReport &report) {
  Json json = {{"schema", 1},
               {"output", report.output},
               {"model", report.model},
               {"parameters", report.parameters},
               {"ranks", report.plan.plan.ranks()},
               {"plan", planAsJson(report.plan)},
               {"description", planner::describePlan(report.plan.plan)},
               {"reason", report.reason},
               {"global_batch", report.plan.plan.globalBatch()},
               {"predicted", nullptr},
               {"arena_bytes", report.arenaBytes},
               {"memory_limit_bytes", report.memoryLimitBytes},
               {"file_bytes", report.fileBytes},
               {"cluster",
                {{"name", report.cluster.name},
                 {"hosts", report.cluster.hosts},
                 {"devices_per_host", report.cluster.devicesPerHost},
                 {"measured_on", report.cluster.measuredOn}}}};
  if (report.isPriced)
    json["predicted"] = predictionAsJson(report.plan.prediction);
  return json.dump(2);
}

std::string sweepJson(const RunConfig &run, const planner::Sweep &sweep) {
  Json json = {{"schema", 1},
               {"model", {{"name", run.model.name}, {"parameters", run.model.parameterCount()}}},
               {"system", run.system.name},
               {"error", run.system.error.time},
               {"comparison_error", run.system.error.comparison},
               {"global_batch", run.globalBatch},
               {"points", Json::array()}};
  if (sweep.pricePerDeviceHour)
    json["price_per_device_hour"] = *sweep.pricePerDeviceHour;
  for (const planner::SweepPoint &point : sweep.points) {
    Json entry = {{"devices", point.devices}, {"plan", nullptr}, {"predicted", nullptr}};
    if (!point.change.empty())
      entry["change"] = point.change;
    if (point.plan) {
      double hours = point.deviceHoursPerBillionTokens();
      entry["plan"] = planAsJson(*point.plan);
      entry["predicted"] = predictionAsJson(point.plan->prediction);
      entry["device_hours_per_billion_tokens"] = hours;
      if (sweep.pricePerDeviceHour)
        entry["price_per_billion_tokens"] = *sweep.pricePerDeviceHour * hours;
    } else {
      entry["reason"] = point.reason;
    }
    json["points"].push_back(std::move(entry));
  }
  return json.dump(2);
}

std::string whyNotJson(const planner::WhyNot &answer) {
  Json json = {{"schema", 1}, {"verdict", planner::verdict(answer)}, {"violated", answer.violated}};
  if (answer.violated.empty()) {
    json["plan"] = planAsJson(answer.best);
    json["predicted"] = predictionAsJson(answer.best.prediction);
    json["chosen"] = {{"plan", planAsJson(answer.chosen)}, {"predicted", predictionAsJson(answer.chosen.prediction)}};
    planner::Comparison comparison = answer.comparison();
    json["comparison_error"] = comparison.error;
    json["equal"] = comparison.isSame();
    json["probability_faster"] = comparison.probabilityFaster();
    json["simpler"] = answer.isSimpler;
    json["items"] = Json::object();
    for (const auto &[name, seconds] : answer.items)
      json["items"][name] = seconds;
    json["more_seconds"] = answer.moreSeconds;
    json["lower_bound_seconds"] = answer.lowerBoundSeconds;
  }
  return json.dump(2);
}

} // namespace espalier
