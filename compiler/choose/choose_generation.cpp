#include "compiler/choose/choose_generation.h"

#include "compiler/choose/choose_plan.h"
#include "compiler/import/run/import_run.h"
#include "compiler/import/run/split_limits.h"
#include "planner/check.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {

namespace {

/// Returns the plan of a generation run, without the properties that only training has. Samples are distributed over
/// the replicas.
planner::Plan generationPlan(RunConfig run, int tp, int pp) {
  run.pins.tp = tp;
  run.pins.pp = pp;
  int64_t replicas = run.pins.dp.value_or(1) * run.pins.ep.value_or(1);
  run.pins.microBatchSize = run.pins.microBatchSize.value_or(std::max<int64_t>(1, run.globalBatch / replicas));
  run.pins.microBatches = 1;
  run.pins.sequenceParallel = false;
  leaveBackward(run);
  return pinnedPlan(run);
}

/// Returns whether the model can be split so. Generation may leave devices unused.
bool canSplit(const RunConfig &run, int tp, int pp) {
  planner::Pins pins;
  pins.tp = tp;
  pins.pp = pp;
  pins.splitsExperts = run.pins.splitsExperts;
  std::vector<planner::Divisibility> dims = splitLimits(run.model);
  return planner::check(pins, {.layers = run.model.layerCount(), .divisibility = dims}).empty();
}

} // namespace

ChosenPlan chooseGeneration(mlir::MLIRContext &context, const RunConfig &run, const std::string &target) {
  const planner::Pins &pins = run.pins;
  if (int cp = pins.cp.value_or(1); cp > 1)
    return {std::nullopt,
            fmt::format("error: run_mode predict does not split sequences: each step of decoding has one new token of "
                        "a text, and its cache is not split; context_parallel: {} → 1",
                        cp),
            true,
            {}};
  if (run.isPinned)
    return {generationPlan(run, pins.tp.value_or(1), pins.pp.value_or(1)), "the run file pins it", false, {}};
  double limit = run.cluster.memoryBytes;
  std::optional<planner::Plan> smallest;
  int replicas = pins.dp.value_or(1) * pins.ep.value_or(1);
  for (int ranks = 1; ranks * replicas <= run.cluster.devices(); ranks *= 2)
    for (int tp = ranks; tp >= 1; tp /= 2) {
      int pp = ranks / tp;
      bool isFree = pins.tp.value_or(tp) == tp && pins.pp.value_or(pp) == pp;
      if (!isFree || !canSplit(run, tp, pp))
        continue;
      planner::Plan plan = generationPlan(run, tp, pp);
      std::optional<uint64_t> bytes = arenaBytes(context, run, plan, target);
      if (!bytes)
        return {std::nullopt, "error: the model cannot be partitioned", true, {}};
      if (limit <= 0 || static_cast<double>(*bytes) <= limit)
        return {plan, "it takes the fewest devices that have room", false, {}};
      smallest = plan;
    }
  if (smallest) // the compilation of this plan reports that it is too large
    return {smallest, "it takes the fewest devices", false, {}};
  return {std::nullopt,
          "error: no plan: the pins of tp and pp fit neither the model's sizes nor the cluster's devices",
          true,
          {}};
}

} // namespace espalier
