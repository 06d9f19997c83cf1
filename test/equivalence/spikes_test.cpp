// Steps with a spike of the gradient norm change nothing, under every kind of plan, and a resumed run skips the same
// steps.
#include "test/equivalence/splits.h"

#include "runtime/run/run.h"
#include "test/host_options.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr int64_t steps = 14;

/// The norms of batches differ by more than two percent, so that a run has spikes and steps between them.
std::vector<std::string> spikeSets() {
  return {"runner_wrapper.skip_spike_factor=1.02", "runner_wrapper.skip_spike_window=4"};
}

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string> &more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

rt::Program compiled(const RunConfig &run, const SplitCase &split) {
  mlir::MLIRContext context;
  std::optional<Compiled> result = compileRun(context, run, planOf(run, split), hostOptions());
  if (!result)
    throw std::runtime_error("the plan does not compile");
  result->plan.mutable_settings()->set_flops_per_step(0); // skip the measurement of the machine's speed
  return rt::Program(std::move(result->plan), 1);
}

rt::RunOptions optionsFor(const RunConfig &run, int64_t count) {
  rt::RunOptions options;
  options.dataset = equivalenceData(run);
  options.steps = count;
  options.threads = 1;
  return options;
}

/// Returns the number of skipped steps.
int64_t skipped(const TrainingRecord &record) {
  return std::count(record.applied.begin(), record.applied.end(), false);
}

void expectAlike(const TrainingRecord &expected, const TrainingRecord &actual) {
  EXPECT_EQ(expected.applied, actual.applied);
  ASSERT_EQ(expected.losses.size(), actual.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], 1e-4 * expected.norms[step]) << "step " << step;
  }
}

/// One split of each axis and of each stage of ZeRO.
const SplitCase kinds[] = {
    {.name = "accumulate2", .microBatches = 2},
    {.name = "dp2", .dp = 2},
    {.name = "tp2_sp", .tp = 2, .sequenceParallel = true},
    {.name = "pp2", .pp = 2, .microBatches = 4},
    {.name = "pp2_zero_bubble_h1", .pp = 2, .microBatches = 4, .schedule = planner::Schedule::ZeroBubbleH1},
    {.name = "cp2_zero1", .cp = 2, .zero = 1},
    {.name = "dp2_zero1", .dp = 2, .zero = 1},
    {.name = "dp2_zero2", .dp = 2, .microBatches = 2, .zero = 2},
    {.name = "dp2_tp2_pp2_zero3", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 3},
};

class Spikes : public testing::TestWithParam<SplitCase> {};

TEST_P(Spikes, AreSkippedLikeThoseOfTheUnsplitModel) {
  RunConfig run = equivalenceRun("gpt2", spikeSets());
  static const TrainingRecord unsplit = trainCompiled(run, planOf(run, {}), steps);
  EXPECT_GE(skipped(unsplit), 2);
  EXPECT_LE(skipped(unsplit), steps - 6);
  expectAlike(unsplit, trainCompiled(run, planOf(run, GetParam()), steps));
}

/// The parameters of all ranks, gathered, are those before the step, bit for bit.
TEST_P(Spikes, ChangeNoParameter) {
  RunConfig run = equivalenceRun("gpt2", spikeSets());
  rt::RunOptions options = optionsFor(run, steps);
  options.keepParameters = true;
  rt::RunResult result = rt::runPlan(compiled(run, GetParam()), options);
  ASSERT_EQ(result.parameters.size(), size_t(steps));
  for (size_t step = 1; step < result.steps.size(); ++step) {
    EXPECT_EQ(result.parameters[step] == result.parameters[step - 1], result.steps[step].isSpike) << "step " << step;
    EXPECT_EQ(result.steps[step].isSpike, !result.steps[step].isApplied) << "step " << step;
  }
}

/// A run that ends after each step and is resumed gives the losses of the uninterrupted run, bit for bit.
TEST_P(Spikes, AreSkippedByAResumedRun) {
  RunConfig run = equivalenceRun("gpt2", spikeSets());
  rt::Program program = compiled(run, GetParam());
  rt::RunOptions options = optionsFor(run, steps);
  std::vector<double> whole, parts;
  for (const rt::StepRecord &step : rt::runPlan(program, options).steps)
    whole.push_back(step.loss);
  fs::path folder = fs::temp_directory_path() / fmt::format("espalier-spikes-{}", getpid());
  fs::remove_all(folder);
  for (int64_t end : {int64_t(5), int64_t(8), steps}) {
    rt::RunOptions part = optionsFor(run, end);
    part.checkpoint = folder;
    part.resume = !parts.empty();
    for (const rt::StepRecord &step : rt::runPlan(program, part).steps)
      parts.push_back(step.loss);
  }
  fs::remove_all(folder);
  EXPECT_EQ(whole, parts);
}

INSTANTIATE_TEST_SUITE_P(Plans, Spikes, testing::ValuesIn(kinds), [](const auto &info) { return info.param.name; });

TEST(ExpertSpikes, AreSkippedLikeThoseOfTheUnsplitModel) {
  RunConfig run = equivalenceRun("mixtral", spikeSets());
  TrainingRecord unsplit = trainCompiled(run, planOf(run, {}), steps);
  EXPECT_GE(skipped(unsplit), 2);
  expectAlike(unsplit, trainCompiled(run, planOf(run, {.name = "", .dp = 2, .ep = 2, .zero = 1}), steps));
}

TEST(InterpretedSpikes, AreThoseOfTheCompiledRun) {
  RunConfig run = equivalenceRun("gpt2", spikeSets());
  TrainingRecord interpreted = trainInterpreted(run, planOf(run, {.name = "", .dp = 2, .zero = 1}), steps);
  expectAlike(trainCompiled(run, planOf(run, {}), steps), interpreted);
}

/// A spike in f16 keeps the dynamic loss scale, and an overflow enters no norm.
TEST(ScaledSpikes, KeepTheLossScale) {
  RunConfig run = equivalenceRun(
      "gpt2",
      with(spikeSets(), {"model.model_config.param_init_type=float16", "model.model_config.compute_dtype=float16",
                         "optimizer.master_weights=True", "runner_wrapper.scale_sense.type=DynamicLossScaleUpdateCell",
                         "runner_wrapper.scale_sense.loss_scale_value=67108864"}));
  rt::RunResult result =
      rt::runPlan(compiled(run, {.name = "", .dp = 2, .pp = 2, .microBatches = 2, .zero = 1}), optionsFor(run, 24));
  int64_t spikes = 0, overflows = 0;
  double scale = 67108864;
  for (const rt::StepRecord &step : result.steps) {
    bool isOverflow = !step.isApplied && !step.isSpike;
    spikes += step.isSpike;
    overflows += isOverflow;
    scale = isOverflow ? scale / 2 : scale;
    EXPECT_EQ(step.lossScale, scale) << "step " << step.step;
  }
  EXPECT_GE(spikes, 1);
  EXPECT_GE(overflows, 1);
}

} // namespace
} // namespace espalier
