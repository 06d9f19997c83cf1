// The plan that a run file pins, with settings for single stages and chunks, and the plan of a file that pins none.
#include "compiler/choose/choose_plan.h"
#include "compiler/choose/fit_memory.h"
#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace espalier;
using testing::ElementsAre;

namespace {

RunConfig importConfig(const std::string &name, std::vector<std::string> sets) {
  ImportOptions options;
  options.sets = std::move(sets);
  ImportedRun imported = importRun(ESPALIER_SOURCE_DIR "/configs/" + name + ".yaml", options);
  EXPECT_TRUE(imported.ok()) << imported.diagnostics.render();
  return imported.config;
}

/// Returns the number of fully recomputed layers of each chunk, in model order, for tiny_gpt with nine layers on 2 x 2
/// chunks.
std::vector<int> repeatedLayers(std::vector<std::string> sets, const std::string &recompute) {
  sets.insert(sets.end(), {"model.model_config.num_layers=9", "model.model_config.offset=[[1, 1], [0, -1]]",
                           "model.model_config.pp_interleave_num=2", "recompute_config.recompute=" + recompute});
  RunConfig run = importConfig("tiny_gpt", sets);
  std::vector<int> counts;
  for (const planner::StagePlan &stage : pinnedPlan(run).stages)
    counts.push_back(static_cast<int>(std::ranges::count(stage.recompute, planner::Recompute::Full)));
  return counts;
}

// The chunks have 3, 3, 2 and 1 layers; the first and the third are on stage 0.
TEST(PinnedPlan, RecomputeOfChunks) {
  const std::vector<std::string> interleaved = {"parallel.pipeline_config.pipeline_interleave=True"};
  EXPECT_THAT(repeatedLayers(interleaved, "[[3, 0], [False, True]]"), ElementsAre(3, 0, 0, 1));
  // A number for a stage is distributed over its chunks in order, up to their numbers of layers.
  EXPECT_THAT(repeatedLayers(interleaved, "[3, 9]"), ElementsAre(2, 3, 1, 1));
  EXPECT_THAT(repeatedLayers(interleaved, "[0, 1]"), ElementsAre(0, 1, 0, 0));
}

TEST(ChoosePlan, AFreeRunGetsAnExecutablePlanWhoseArenaFits) {
  RunConfig run = importConfig("tiny_gpt", {"parallel.parallel_mode=2"});
  mlir::MLIRContext context;
  ChosenPlan chosen = choosePlan(context, run);
  ASSERT_TRUE(chosen.plan) << chosen.reason;
  EXPECT_TRUE(planner::Capability().runs(*chosen.plan));
  EXPECT_EQ(chosen.plan->ranks(), run.cluster.devices());
  EXPECT_EQ(chosen.plan->globalBatch(), run.globalBatch);
  // With hardly more memory than that plan needs, this plan or another one must still fit.
  CompileOptions sizesOnly;
  sizesOnly.emitKernels = false;
  auto arenaOf = [&](const planner::Plan &plan) {
    std::optional<Compiled> compiled = compileRun(context, run, plan, sizesOnly);
    uint64_t most = 0;
    for (const auto &stage : compiled->plan.stages())
      most = std::max<uint64_t>(most, stage.arena_bytes(rt::pb::DEVICE));
    return static_cast<double>(most);
  };
  run.cluster.memoryBytes = 0.6 * arenaOf(*chosen.plan);
  ChosenPlan smaller = choosePlan(context, run);
  ASSERT_TRUE(smaller.plan) << smaller.reason;
  EXPECT_LE(arenaOf(*smaller.plan), run.cluster.memoryBytes);
}

TEST(ChoosePlan, ReportsTheSmallestChangesIfNothingFits) {
  RunConfig run = importConfig("tiny_gpt", {"parallel.parallel_mode=2"});
  run.cluster.memoryBytes = 4e5;
  mlir::MLIRContext context;
  ChosenPlan chosen = choosePlan(context, run);
  EXPECT_FALSE(chosen.plan);
  EXPECT_FALSE(chosen.isInputError);
  EXPECT_NE(chosen.reason.find("memory: the plan that needs least"), std::string::npos) << chosen.reason;
  EXPECT_NE(chosen.reason.find("fits with devices="), std::string::npos) << chosen.reason;
}

} // namespace
