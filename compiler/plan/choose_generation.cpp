#include "compiler/plan/choose_generation.h"

#include "compiler/plan/choose_plan.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {

namespace {

/// What a plan for training has and one for generation has not.
planner::Plan generationPlan(RunConfig run, int tp, int pp) {
  run.pins.tp = tp;
  run.pins.pp = pp;
  run.pins.microBatchSize = run.pins.microBatchSize.value_or(run.globalBatch);
  run.pins.microBatches = 1;
  run.pins.zero = 0;
  run.pins.virtualStages = 1;
  run.pins.schedule = planner::Schedule::OneFOneB;
  run.pins.recompute = planner::Recompute::None;
  run.pins.sequenceParallel = false;
  run.pins.offloadOptimizer = run.pins.offloadActivations = run.pins.offloadParameters = false;
  run.recompute = {};
  if (run.pins.stageLayers && run.pins.stageLayers->size() != static_cast<size_t>(pp))
    run.pins.stageLayers.reset();
  return pinnedPlan(run);
}

bool divides(const RunConfig &run, int tp) {
  return std::ranges::all_of(run.model.tensorParallelDims(),
                             [&](const std::string &dim) { return run.model.dims.at(dim) % tp == 0; });
}

} // namespace

ChosenPlan chooseGeneration(mlir::MLIRContext &context, const RunConfig &run, const std::string &target) {
  const planner::Pins &pins = run.pins;
  for (auto [name, size] : {std::pair("data_parallel", pins.dp.value_or(1)),
                            std::pair("context_parallel", pins.cp.value_or(1)),
                            std::pair("expert_parallel", pins.ep.value_or(1))})
    if (size > 1)
      return {std::nullopt,
              fmt::format("error: run_mode predict splits a model over tp and pp only; {}: {} → 1", name, size),
              true};
  if (run.isPinned)
    return {generationPlan(run, pins.tp.value_or(1), pins.pp.value_or(1)), "", false};
  double limit = run.cluster.memoryBytes;
  std::optional<planner::Plan> smallest;
  for (int ranks = 1; ranks <= run.cluster.devices(); ranks *= 2)
    for (int tp = ranks; tp >= 1; tp /= 2) {
      int pp = ranks / tp;
      bool isFree = pins.tp.value_or(tp) == tp && pins.pp.value_or(pp) == pp;
      if (!isFree || !divides(run, tp) || pp > run.model.layerCount())
        continue;
      planner::Plan plan = generationPlan(run, tp, pp);
      std::optional<uint64_t> bytes = arenaBytes(context, run, plan, target);
      if (!bytes)
        return {std::nullopt, "error: the model cannot be partitioned", true};
      if (limit <= 0 || static_cast<double>(*bytes) <= limit)
        return {plan, "", false};
      smallest = plan;
    }
  if (smallest) // too large, as its compilation will say
    return {smallest, "", false};
  return {std::nullopt, "error: no plan: the pins of tp and pp fit neither the model's sizes nor the cluster's devices",
          true};
}

} // namespace espalier
