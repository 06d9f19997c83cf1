// The plan that a run file pins, with settings for single stages and chunks.
#include "compiler/import/run/import_run.h"
#include "compiler/plan/choose_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace espalier;
using testing::ElementsAre;

namespace {

/// Returns the number of fully recomputed layers of each chunk, in model order, for tiny_gpt with nine layers on 2 x 2
/// chunks.
std::vector<int> repeatedLayers(std::vector<std::string> sets, const std::string &recompute) {
  sets.insert(sets.end(), {"model.model_config.num_layers=9", "model.model_config.offset=[[1, 1], [0, -1]]",
                           "model.model_config.pp_interleave_num=2", "recompute_config.recompute=" + recompute});
  ImportOptions options;
  options.sets = sets;
  ImportedRun run = importRun(ESPALIER_SOURCE_DIR "/configs/tiny_gpt.yaml", options);
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  std::vector<int> counts;
  for (const planner::StagePlan &stage : pinnedPlan(run.config).stages)
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

} // namespace
