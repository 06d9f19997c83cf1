#include "compiler/choose/fit_memory.h"

#include "compiler/choose/choose_generation.h"
#include "compiler/choose/choose_plan.h"
#include "compiler/driver.h"
#include "compiler/profile/profile_model.h"
#include "planner/answer/explain.h"
#include "planner/search.h"
#include "planner/search/diagnose.h"

#include <algorithm>
#include <fmt/format.h>

#include <string_view>
#include <type_traits>
#include <vector>

namespace espalier {

namespace {

const rt::pb::Stage &fullestStage(const rt::pb::Plan &plan) {
  int fullest = 0;
  for (int stage = 1; stage < plan.stages_size(); ++stage)
    if (plan.stages(stage).arena_bytes(rt::pb::DEVICE) > plan.stages(fullest).arena_bytes(rt::pb::DEVICE))
      fullest = stage;
  return plan.stages(fullest);
}

} // namespace

std::string fitWithoutMargin(const ClusterConfig &cluster, double bytes) {
  double all = cluster.memoryBytes + cluster.marginBytes;
  if (bytes <= cluster.memoryBytes || bytes > all)
    return "";
  return "; fits with " + planner::withoutMargin(all);
}

std::optional<uint64_t> arenaBytes(mlir::MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                   const std::string &target) {
  CompileOptions sizesOnly;
  sizesOnly.target = target;
  sizesOnly.emitKernels = false;
  std::optional<Compiled> compiled = compileRun(context, run, plan, sizesOnly);
  if (!compiled)
    return std::nullopt;
  return fullestStage(compiled->plan).arena_bytes(rt::pb::DEVICE);
}

std::optional<planner::Prediction> predictionOf(mlir::MLIRContext &context, const RunConfig &run,
                                                const planner::Plan &plan, const std::string &target) {
  if (run.runMode == "predict")
    return std::nullopt;
  std::optional<planner::Problem> problem = profileModel(context, run, target);
  if (!problem)
    return std::nullopt;
  return planner::pricePlan(*problem, plan).prediction;
}

std::string memoryExcess(mlir::MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                         const rt::pb::Plan &compiled) {
  uint64_t limit = compiled.memory_limit_bytes();
  const rt::pb::Stage &stage = fullestStage(compiled);
  if (limit == 0 || stage.arena_bytes(rt::pb::DEVICE) <= limit)
    return "";
  std::string classes;
  for (const rt::pb::MemoryClass &entry : stage.memory())
    classes += fmt::format("{}{} {}", classes.empty() ? "" : ", ", entry.name(),
                           planner::describeBytes(static_cast<double>(entry.bytes())));
  std::string text = fmt::format("needs {} per rank, have {} ({}): {}",
                                 planner::describeBytes(static_cast<double>(stage.arena_bytes(rt::pb::DEVICE))),
                                 planner::describeBytes(limit), describePlan(plan), classes);
  text += fitWithoutMargin(run.cluster, static_cast<double>(stage.arena_bytes(rt::pb::DEVICE)));
  std::optional<planner::Problem> problem = // generation can only change its number of ranks
      run.runMode == "predict" ? std::nullopt : profileModel(context, run, compiled.target());
  if (problem) {
    // Lowers the limit by the ratio of this plan's estimate to its real size, and by another half percent for plans
    // with a lower relative estimate. Each plan is compiled before it is suggested.
    constexpr double unlike = 0.995;
    double estimate = planner::pricePlan(*problem, plan).prediction.peakBytes;
    double scale = estimate / static_cast<double>(stage.arena_bytes(rt::pb::DEVICE));
    problem->machine.memoryBytes = static_cast<double>(limit) * std::min(1.0, scale) * unlike;
    for (const planner::FreedPins &freed : planner::freePins(*problem, {}))
      if (auto bytes = arenaBytes(context, run, freed.best.plan, compiled.target()); bytes && *bytes <= limit)
        return text + fmt::format("; fits with {}: {} ({})", freed.change, describePlan(freed.best.plan),
                                  planner::describeBytes(static_cast<double>(*bytes)));
  }
  return text + "; no other plan of these devices fits: use more devices";
}

namespace {

std::string join(const std::vector<std::string> &parts) { return fmt::format("{}", fmt::join(parts, "; ")); }

ChosenPlan nothingFits(const planner::SearchResult &result) {
  std::string text = "error: no plan: " + result.binding;
  for (const planner::Relaxation &relaxation : result.relaxations)
    text +=
        fmt::format("; fits with {} ({} per rank)", relaxation.change, planner::describeBytes(relaxation.needBytes));
  return {std::nullopt, text, false, {}};
}

/// Tries relaxations that need a new profile of the model, because its terms hold only for these pins.
void tryProfiledPins(mlir::MLIRContext &context, const RunConfig &run, planner::SearchOptions options,
                     const std::string &target, planner::SearchResult &result) {
  bool isBare = result.relaxations.empty(); // then also reports their combinations with other changes
  options.diagnose = options.relax = isBare;
  options.alternatives = 0;
  std::vector<planner::Relaxation> found;
  planner::visitFields([&](const char *, const char *name, auto pin, auto field) {
    if constexpr (!std::is_null_pointer_v<decltype(field)>) {
      bool isProfiled = run.pins.profiled().*pin && *(run.pins.*pin) != planner::ParallelConfig().*field;
      bool isUnsplit = name == std::string_view("cp") && run.pins.cp == 1 && run.model.splitsSequence();
      if (!isProfiled && !isUnsplit)
        return;
      RunConfig freed = run;
      (freed.pins.*pin).reset();
      std::optional<planner::Problem> problem = profileModel(context, freed, target);
      if (!problem)
        return;
      std::string change = planner::leftToPlanner({name});
      planner::SearchResult without = planner::search(*problem, options);
      if (!without.plans.empty())
        found.push_back({change, without.plans.front().prediction.peakBytes});
      for (const planner::Relaxation &other : without.relaxations)
        found.push_back({other.change + ", " + change, other.needBytes});
    }
  });
  result.relaxations.insert(result.relaxations.begin(), found.begin(), found.end());
}

} // namespace

planner::SearchResult searchCompiled(mlir::MLIRContext &context, const RunConfig &run, const planner::Problem &given,
                                     const planner::SearchOptions &options, const std::string &target) {
  constexpr int attempts = 4;
  planner::Problem problem = given;
  double limit = run.cluster.memoryBytes;
  planner::SearchResult result;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    result = planner::search(problem, options);
    if (result.plans.empty() && result.errors.empty() && options.diagnose && options.relax)
      tryProfiledPins(context, run, options, target, result);
    double excess = 1;
    for (planner::PricedPlan &priced : result.plans) {
      priced.plan.keepTensorParallelResults = !run.recompute.mpCommRecompute;
      priced.plan.sliceRecomputedInputs = run.recompute.recomputeSliceActivation;
      priced.prediction.memoryLimitBytes = limit;
    }
    for (size_t i = 0; i < result.plans.size(); ++i) {
      planner::PricedPlan &priced = result.plans[i];
      if (!priced.executable)
        return result; // the plan cannot be executed and is only printed
      std::optional<uint64_t> bytes = arenaBytes(context, run, priced.plan, target);
      if (bytes && static_cast<double>(*bytes) <= limit) {
        result.plans.erase(result.plans.begin(), result.plans.begin() + static_cast<std::ptrdiff_t>(i));
        return result;
      }
      if (bytes && i == 0)
        excess = static_cast<double>(*bytes) / limit;
    }
    if (result.plans.empty())
      return result;
    problem.machine.memoryBytes = problem.machine.memoryBytes / excess * 0.995;
  }
  result.plans.clear();
  result.binding =
      fmt::format("memory: the plans that should fit {} do not once they are compiled", planner::describeBytes(limit));
  return result;
}

ChosenPlan choosePlan(mlir::MLIRContext &context, const RunConfig &run, const std::string &target) {
  if (const char *what = planner::Capability().whyNot(run.pins))
    return {std::nullopt, fmt::format("error: {} cannot be executed yet; `espalier plan` prices them", what), true, {}};
  if (run.runMode == "predict")
    return chooseGeneration(context, run, target);
  if (run.isPinned)
    return {pinnedPlan(run), "the run file pins it", false, {}};
  std::optional<planner::Problem> problem = profileModel(context, run, target);
  if (!problem)
    return {std::nullopt, "error: the model cannot be partitioned", true, {}};
  planner::SearchResult result = searchCompiled(context, run, *problem, {}, target);
  if (!result.errors.empty())
    return {std::nullopt, "error: " + join(result.errors), true, {}};
  if (result.plans.empty())
    return nothingFits(result);
  return {result.plans.front().plan, planner::whyChosen(result), false, result.plans.front().prediction};
}

} // namespace espalier
