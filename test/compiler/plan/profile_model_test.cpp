// The planner's picture of a model against what the compiler makes of it: arena bytes and collective bytes of random
// plans.
#include "compiler/driver.h"
#include "compiler/import/import_run.h"
#include "compiler/plan/choose_plan.h"
#include "compiler/plan/fit_memory.h"
#include "compiler/plan/profile_model.h"
#include "dialects/dist/dialect.h"
#include "planner/cost.h"
#include "planner/explain.h"
#include "planner/search.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

using namespace espalier;
using namespace mlir;

namespace {

RunConfig importConfig(const std::string &name, std::vector<std::string> sets = {}, const std::string &cluster = "") {
  ImportOptions options;
  options.sets = std::move(sets);
  options.cluster = cluster;
  ImportedRun imported = importRun(std::string(ESPALIER_SOURCE_DIR) + "/configs/" + name + ".yaml", options);
  EXPECT_TRUE(imported.ok()) << imported.diagnostics.render();
  return imported.config;
}

/// Executable plans over `devices` ranks, with stages as uneven as they come.
class PlanSampler {
public:
  PlanSampler(const RunConfig &run, unsigned seed) : run(run), random(seed) {}

  planner::Plan sample() {
    planner::Plan plan;
    plan.tp = pick({1, 2, 4});
    plan.dp = pick({1, 2, 3});
    plan.pp = pick({1, 2, 4});
    plan.microBatchSize = pick({1, 2, 3, 5, 6, 12}); // 5 and 12 lie between and beyond the profiled ones
    plan.microBatches = plan.pp * pick({1, 2});
    plan.zero = pick({0, 1});
    plan.vocabParallel = run.pins.vocabParallel.value_or(true);
    plan.sequenceParallel = plan.tp > 1 && pick({0, 1});
    plan.schedule = pick({0, 1}) ? planner::Schedule::OneFOneB : planner::Schedule::GPipe;
    std::vector<int> counts = spreadLayers(run.model.layerCount(), plan.pp);
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
  int pick(std::vector<int> values) { return values[random() % values.size()]; }

  const RunConfig &run;
  std::mt19937 random;
};

/// Largest relative difference of predicted and compiled bytes of any stage of `count` random plans.
double worstMemoryError(const std::string &name, int count, unsigned seed) {
  RunConfig run = importConfig(name);
  MLIRContext context;
  std::optional<planner::Problem> problem = profileModel(context, run);
  EXPECT_TRUE(problem);
  if (!problem)
    return 1;
  PlanSampler sampler(run, seed);
  double worst = 0;
  CompileOptions sizesOnly;
  sizesOnly.emitKernels = false;
  for (int i = 0; i < count; ++i) {
    planner::Plan plan = sampler.sample();
    std::optional<Compiled> compiled = compileRun(context, run, plan, sizesOnly);
    EXPECT_TRUE(compiled) << planner::describePlan(plan);
    if (!compiled)
      return 1;
    planner::PricedPlan priced = planner::pricePlan(*problem, plan);
    for (int stage = 0; stage < plan.pp; ++stage) {
      double arena = static_cast<double>(compiled->plan.stages(stage).arena_bytes());
      const planner::StageMemory &memory = priced.prediction.memory[stage];
      double error = std::abs(memory.total() / arena - 1);
      if (error > 0.02) {
        std::string classes;
        for (const auto &entry : compiled->plan.stages(stage).memory())
          classes += entry.name() + " " + std::to_string(entry.bytes()) + ", ";
        ADD_FAILURE() << planner::describePlan(plan) << ", stage " << stage << ": predicted " << memory.total()
                      << " (parameters " << memory.parameters << ", gradients " << memory.gradients << ", optimizer "
                      << memory.optimizer << ", activations " << memory.activations << ", workspace "
                      << memory.workspace << ", buffers " << memory.communication << "), compiled " << arena << " ("
                      << classes << ")";
      }
      worst = std::max(worst, error);
    }
  }
  return worst;
}

TEST(ProfileModel, MemoryOfRandomPlansIsThatOfTheCompiledArena) {
  double worst = worstMemoryError("tiny_gpt", 40, 1);
  RecordProperty("worst", std::to_string(worst));
  std::printf("tiny_gpt: worst error %.3f %%\n", 100 * worst);
  worst = worstMemoryError("gpt2_124m", 20, 2);
  std::printf("gpt2_124m: worst error %.3f %%\n", 100 * worst);
}

} // namespace
