#include "compiler/plan/fit_memory.h"

#include "compiler/driver.h"
#include "compiler/plan/choose_generation.h"
#include "compiler/plan/choose_plan.h"
#include "compiler/plan/profile_model.h"
#include "planner/answer/explain.h"
#include "planner/search.h"

#include <algorithm>
#include <fmt/format.h>

#include <map>
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

struct Change {
  std::string name;
  planner::Plan plan;
};

planner::Plan withRecompute(planner::Plan plan, planner::Recompute recompute) {
  for (planner::StagePlan &stage : plan.stages)
    stage.recompute.assign(stage.layers, recompute);
  return plan;
}

/// Changes that save memory at the same global batch and devices, cheapest in time first.
std::vector<Change> changesOf(const RunConfig &run, const planner::Plan &plan) {
  std::vector<Change> changes;
  auto add = [&](std::string name, planner::Plan changed) { changes.push_back({std::move(name), std::move(changed)}); };
  bool trains = run.runMode != "eval" && run.runMode != "predict"; // else nothing is kept that could be made again
  auto full = [&](const char *joint) { return trains ? std::string("recompute=full") + joint : std::string(); };
  if (trains && plan.zero == 0 && plan.replicas() * plan.cp > 1) {
    planner::Plan zero = plan;
    zero.zero = 1;
    add("zero=1", zero);
  }
  if (plan.tp > 1 && !plan.sequenceParallel && run.model.dims.at("seq") % (plan.cp * plan.tp) == 0) {
    planner::Plan sequence = plan;
    sequence.sequenceParallel = true;
    add("use_seq_parallel: True", sequence);
  }
  if (trains) {
    add("recompute=selective", withRecompute(plan, planner::Recompute::Selective));
    add("recompute=full", withRecompute(plan, planner::Recompute::Full));
  }
  for (int64_t size = plan.microBatchSize / 2; size >= 1 && plan.microBatchSize % size == 0; size /= 2) {
    planner::Plan smaller = withRecompute(plan, planner::Recompute::Full);
    smaller.microBatchSize = size;
    smaller.microBatches = plan.microBatches * plan.microBatchSize / size;
    add(full(" and ") + fmt::format("micro-batches of {}", size), smaller);
  }
  // Replicas become ranks of another axis, with as many samples in all.
  auto tradeReplicas = [&](int planner::Plan::*axis, const char *name, auto divides) {
    for (int times = 2; times <= plan.dp && plan.dp % times == 0 && divides(plan.*axis * times); times *= 2) {
      planner::Plan traded = withRecompute(plan, planner::Recompute::Full);
      traded.*axis = plan.*axis * times;
      traded.dp = plan.dp / times;
      traded.microBatches = plan.microBatches * times;
      add(full(", ") + fmt::format("dp={} and {}={}", traded.dp, name, traded.*axis), traded);
    }
  };
  const std::map<std::string, int64_t> &dims = run.model.dims;
  const int64_t sequence = dims.count("seq") ? dims.at("seq") : 1;
  tradeReplicas(&planner::Plan::tp, "tp", [&](int tp) {
    bool splitsSequence = !plan.sequenceParallel || sequence % (plan.cp * tp) == 0;
    return splitsSequence && std::ranges::all_of(run.model.tensorParallelDims(),
                                                 [&](const std::string &dim) { return dims.at(dim) % tp == 0; });
  });
  tradeReplicas(&planner::Plan::cp, "cp",
                [&](int cp) { return sequence % (cp * (plan.sequenceParallel ? plan.tp : 1)) == 0; });
  return changes;
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
  for (const Change &change : changesOf(run, plan))
    if (auto bytes = arenaBytes(context, run, change.plan, compiled.target()); bytes && *bytes <= limit)
      return text +
             fmt::format("; fits with {} ({})", change.name, planner::describeBytes(static_cast<double>(*bytes)));
  return text + "; no smaller micro-batch, recompute or tensor split on these devices fits: use more devices";
}

namespace {

std::string join(const std::vector<std::string> &parts) { return fmt::format("{}", fmt::join(parts, "; ")); }

ChosenPlan nothingFits(const planner::SearchResult &result) {
  std::string text = "error: no plan: " + result.binding;
  for (const planner::Relaxation &relaxation : result.relaxations)
    text +=
        fmt::format("; fits with {} ({} per rank)", relaxation.change, planner::describeBytes(relaxation.needBytes));
  return {std::nullopt, text, false};
}

/// Relaxations that need the model to be profiled anew: its terms hold for these pins only.
void tryProfiledPins(mlir::MLIRContext &context, const RunConfig &run, planner::SearchOptions options,
                     const std::string &target, planner::SearchResult &result) {
  bool isBare = result.relaxations.empty(); // then what these allow beside other changes is told, too
  options.diagnose = options.relax = isBare;
  options.alternatives = 0;
  std::vector<planner::Relaxation> found;
  auto attempt = [&](bool isPinned, const char *name, void (*free)(PlanPins &)) {
    RunConfig freed = run;
    free(freed.pins);
    std::optional<planner::Problem> problem = isPinned ? profileModel(context, freed, target) : std::nullopt;
    if (!problem)
      return;
    std::string change = std::string(name) + " left to the planner";
    planner::SearchResult without = planner::search(*problem, options);
    if (!without.plans.empty())
      found.push_back({change, without.plans.front().prediction.peakBytes});
    for (const planner::Relaxation &other : without.relaxations)
      found.push_back({other.change + ", " + change, other.needBytes});
  };
  const PlanPins &pins = run.pins;
  attempt(!pins.vocabParallel.value_or(true), "vocab_parallel", [](PlanPins &pins) { pins.vocabParallel.reset(); });
  attempt(!pins.expertTensorParallel.value_or(true), "expert_tensor_parallel",
          [](PlanPins &pins) { pins.expertTensorParallel.reset(); });
  attempt(pins.cp == 1 && !run.model.hasExperts(), "cp", [](PlanPins &pins) { pins.cp.reset(); });
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
      if (!priced.plan.executable)
        return result; // for reading only
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
  if (const char *what = planner::whyNotExecutable(pinsOf(run)))
    return {std::nullopt, fmt::format("error: {} cannot be executed yet; `espalier plan` prices them", what), true};
  if (run.runMode == "predict")
    return chooseGeneration(context, run, target);
  if (run.pins.pinned)
    return {pinnedPlan(run), "", false};
  std::optional<planner::Problem> problem = profileModel(context, run, target);
  if (!problem)
    return {std::nullopt, "error: the model cannot be partitioned", true};
  planner::SearchResult result = searchCompiled(context, run, *problem, {}, target);
  if (!result.errors.empty())
    return {std::nullopt, "error: " + join(result.errors), true};
  if (result.plans.empty())
    return nothingFits(result);
  return {result.plans.front().plan, "", false};
}

} // namespace espalier
