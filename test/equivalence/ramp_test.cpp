// A ramp of the batch size: each batch size is an entry of one plan, and its steps equal those of the unsplit model.
#include "test/equivalence/splits.h"

#include "runtime/run/run.h"
#include "test/host_options.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr int64_t steps = 8;

/// Batches of 4 samples for two steps, then of 8.
std::vector<std::string> rampSets() {
  return {"runner_config.rampup_batch_size=[4, 4, 8]", "lr_schedule.type=linear", "lr_schedule.total_steps=7"};
}

/// Returns the unsplit plan with micro-batches of two samples.
planner::Plan unsplitPlan(const RunConfig &run) { return planOf(run, {.name = "", .microBatches = 4}); }

class Ramp : public testing::TestWithParam<SplitCase> {};

TEST_P(Ramp, TrainsLikeTheUnsplitModel) {
  RunConfig run = equivalenceRun("gpt2", rampSets());
  ASSERT_EQ(run.batchRamp.size(), 1u);
  TrainingRecord expected = trainCompiled(run, unsplitPlan(run), steps);
  TrainingRecord actual = trainCompiled(run, planOf(run, GetParam()), steps);
  ASSERT_EQ(actual.losses.size(), size_t(steps));
  for (size_t step = 0; step < steps; ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], 1e-4 * expected.norms[step]) << "step " << step;
    EXPECT_EQ(compareGradients(expected.gradients[step], actual.gradients[step]), "") << "step " << step;
  }
}

/// The run stops within the ramp and after it, and gives the bits of the uninterrupted run.
TEST_P(Ramp, ResumesBitForBit) {
  RunConfig run = equivalenceRun("gpt2", rampSets());
  mlir::MLIRContext context;
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, GetParam()), hostOptions());
  ASSERT_TRUE(compiled);
  compiled->plan.mutable_settings()->set_flops_per_step(0); // skip the measurement of the machine's speed
  rt::Program program(std::move(compiled->plan), 1);
  fs::path folder = fs::temp_directory_path() / fmt::format("espalier-ramp-{}", getpid());
  fs::remove_all(folder);
  auto train = [&](int64_t end, bool saves, bool resumes) {
    rt::RunOptions options;
    options.dataset = equivalenceData(run);
    options.steps = end;
    options.threads = 1;
    options.resume = resumes;
    if (saves)
      options.checkpoint = folder;
    return rt::runPlan(program, options).steps;
  };
  std::vector<rt::StepRecord> whole = train(steps, false, false), parts;
  for (int64_t end : {int64_t(1), int64_t(3), steps})
    for (const rt::StepRecord &step : train(end, true, !parts.empty()))
      parts.push_back(step);
  fs::remove_all(folder);
  ASSERT_EQ(whole.size(), parts.size());
  for (size_t step = 0; step < whole.size(); ++step) {
    EXPECT_EQ(whole[step].loss, parts[step].loss) << "step " << step;
    EXPECT_EQ(whole[step].learningRate, parts[step].learningRate) << "step " << step;
    EXPECT_EQ(whole[step].batch, step < 2 ? 4 : 8) << "step " << step;
  }
}

const SplitCase kinds[] = {
    {.name = "accumulate4", .microBatches = 4},
    {.name = "dp2_zero1", .dp = 2, .microBatches = 2, .zero = 1},
    {.name = "dp2_zero3", .dp = 2, .microBatches = 2, .zero = 3},
    {.name = "tp2_sp", .tp = 2, .microBatches = 2, .sequenceParallel = true},
    {.name = "pp2", .pp = 2, .microBatches = 4},
    {.name = "pp3", .pp = 3, .microBatches = 8},
    {.name = "pp2_gpipe", .pp = 2, .microBatches = 4, .schedule = planner::Schedule::GPipe},
    {.name = "pp2_zero_bubble_h1", .pp = 2, .microBatches = 4, .schedule = planner::Schedule::ZeroBubbleH1},
    {.name = "dp2_cp2", .dp = 2, .cp = 2, .microBatches = 2},
};
INSTANTIATE_TEST_SUITE_P(Plans, Ramp, testing::ValuesIn(kinds), [](const auto &info) { return info.param.name; });

/// The first step equals that of a run whose only batch is the first one of the ramp.
TEST(RampEntries, TrainOnTheirOwnBatch) {
  RunConfig run = equivalenceRun("gpt2", rampSets()), small = equivalenceRun("gpt2");
  planner::Plan plan = unsplitPlan(small);
  plan.microBatches = 2;
  TrainingRecord expected = trainCompiled(small, plan, 1), actual = trainCompiled(run, unsplitPlan(run), 1);
  EXPECT_NEAR(actual.losses[0], expected.losses[0], 1e-6);
  EXPECT_EQ(compareGradients(expected.gradients[0], actual.gradients[0], 1e-6), "");
}

/// The schedule counts steps of any batch size, as the run does, so that both end at the same point.
TEST(RampRates, EndWithTheRun) {
  RunConfig run = equivalenceRun("gpt2", rampSets());
  mlir::MLIRContext context;
  std::optional<Compiled> compiled = compileRun(context, run, unsplitPlan(run), hostOptions());
  ASSERT_TRUE(compiled);
  rt::RunOptions options;
  options.dataset = equivalenceData(run);
  options.steps = steps;
  std::vector<rt::StepRecord> records = rt::runPlan(rt::Program(std::move(compiled->plan), 1), options).steps;
  ASSERT_EQ(records.size(), size_t(steps));
  for (size_t step = 0; step < records.size(); ++step) // the schedule has 7 steps, the run one more
    EXPECT_NEAR(records[step].learningRate, run.schedule.peak() * std::max(0., 1 - double(step) / 7),
                1e-7 * run.schedule.peak());
}

/// A plan without a ramp has two entries. A ramp adds one per batch size.
TEST(RampEntries, AreNamedByTheirMicroBatches) {
  RunConfig run = equivalenceRun("gpt2", {"runner_config.rampup_batch_size=[2, 2, 30]"});
  mlir::MLIRContext context;
  CompileOptions sizesOnly;
  sizesOnly.emitKernels = false;
  std::optional<Compiled> compiled = compileRun(context, run, unsplitPlan(run), sizesOnly);
  ASSERT_TRUE(compiled);
  std::vector<std::string> names;
  for (const rt::pb::Entry &entry : compiled->plan.entries())
    names.push_back(entry.name());
  EXPECT_EQ(names,
            (std::vector<std::string>{"train_step", "evaluate", "train_step_1", "train_step_2", "train_step_3"}));
  ASSERT_EQ(compiled->plan.settings().batch_ramp_size(), 3);
  EXPECT_EQ(compiled->plan.settings().batch_ramp(1).samples(), 20u);
  EXPECT_EQ(compiled->plan.settings().batch_ramp(1).global_batch(), 4u);
  EXPECT_EQ(compiled->plan.settings().batch_ramp(1).entry(), 3u);
}

} // namespace
} // namespace espalier
