// Run files of configs/ and random plans for tests of the profile.
#pragma once

#include "compiler/choose/choose_plan.h"
#include "compiler/import/run/import_run.h"
#include "planner/model/schedule.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace espalier {

inline const std::string sizes = "model.model_config."; ///< section of a model's sizes

/// Imports configs/NAME.yaml with `sets` over its values. Errors fail the test.
inline RunConfig importConfig(const std::string &name, std::vector<std::string> sets = {},
                              const std::string &cluster = "") {
  ImportOptions options;
  options.sets = std::move(sets);
  options.cluster = cluster;
  ImportedRun imported = importRun(std::string(ESPALIER_SOURCE_DIR) + "/configs/" + name + ".yaml", options);
  EXPECT_TRUE(imported.ok()) << imported.diagnostics.render();
  return imported.config;
}

/// Generates random executable plans over `devices` ranks, with uneven stages.
class PlanSampler {
public:
  /// With several chunks per stage if `interleaves`, else with one. Uses the given ZeRO stages, and the schedule if
  /// one is given.
  PlanSampler(const RunConfig &run, unsigned seed, bool interleaves, std::vector<int> zeros = {0, 1},
              std::optional<planner::Schedule> schedule = std::nullopt)
      : run(run), interleaves(interleaves), zeros(std::move(zeros)), given(schedule), random(seed) {}

  planner::Plan sample() {
    planner::Plan plan;
    do
      plan.tp = pick({1, 2, 4});
    while (!dividesTheModel(plan.tp));
    plan.dp = pick({1, 2, 3});
    plan.pp = pick({1, 2, 4});
    if (run.model.hasExperts()) {
      plan.ep = pick({1, 2, 4});
      plan.pp = pick({1, 2});
      plan.tp = pick({1, 2});
      plan.splitsExperts = run.pins.splitsExperts.value_or(true);
      plan.expertsOverContext = run.pins.expertsOverContext.value_or(false);
    }
    plan.microBatchSize = pick({1, 2, 3, 5, 6, 12});
    plan.microBatches = plan.pp * pick({1, 2});
    plan.zero = pick(zeros);
    plan.vocabParallel = run.pins.vocabParallel.value_or(true);
    plan.sequenceParallel = plan.tp > 1 && pick({0, 1});
    int64_t positions = run.model.dims.at("seq") / (plan.sequenceParallel ? plan.tp : 1);
    do
      plan.cp = run.model.hasExperts() && !run.model.splitsSequence() ? 1 : pick({1, 2, 3, 4, 8, 16});
    while (positions % plan.cp || plan.dp * plan.cp > 12 || // limits the shards of a small model
           (plan.expertsOverContext && run.model.dims.at("expert") % plan.expertRanks() != 0));
    plan.sliceRecomputedInputs = run.recompute.recomputeSliceActivation;
    plan.schedule = pick({0, 1}) ? planner::Schedule::OneFOneB : planner::Schedule::GPipe;
    if (run.runMode == "eval") {
      plan.zero = 0;
      plan.microBatches = 1;
      plan.sliceRecomputedInputs = false;
    }
    if (interleaves) {
      plan.pp = pick({2, 3, 4});
      plan.microBatches = plan.pp * pick({1, 2, 3, 5});
      plan.virtualStages = pick({2, 3, 4});
      plan.schedule = planner::Schedule::Interleaved;
    }
    if (given) {
      plan.schedule = *given;
      plan.pp = pick({2, 3, 4});
      plan.microBatches = pick({1, 2, 3, 5, 8, 13});
      plan.virtualStages = planner::chunksOf(*given, 1);
    }
    std::vector<int> counts = spreadLayers(run.model.layerCount(), plan.pp * plan.virtualStages);
    if (plan.pp > 1 && counts[0] > 1 && pick({0, 1})) {
      --counts[0];
      ++counts[1];
    }
    int first = 0;
    for (int count : counts) {
      planner::StagePlan stage{first, count, {}};
      for (int layer = 0; layer < count; ++layer)
        stage.recompute.push_back(static_cast<planner::Recompute>(pick({0, 1, 2})));
      plan.stages.push_back(stage);
      first += count;
    }
    return plan;
  }

private:
  bool dividesTheModel(int tp) const {
    return llvm::all_of(run.model.tensorParallelDims(),
                        [&](const std::string &dim) { return run.model.dims.at(dim) % tp == 0; });
  }

  int pick(const std::vector<int> &values) { return values[random() % values.size()]; }

  const RunConfig &run;
  bool interleaves;
  std::vector<int> zeros;
  std::optional<planner::Schedule> given;
  std::mt19937 random;
};

} // namespace espalier
