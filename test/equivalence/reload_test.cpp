// Any plan can load the checkpoint of any other plan, and then trains like the plan that saved it.
#include "test/equivalence/splits.h"

#include "runtime/run/run.h"
#include "test/host_options.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr int64_t trainedSteps = 3, furtherSteps = 5;

/// Every technique that changes the layout of parameters or optimizer state.
constexpr const char *names[] = {"accumulate2",
                                 "dp2",
                                 "dp4_zero1_accumulate2",
                                 "tp2",
                                 "tp2_sp_whole_vocab",
                                 "tp2_full_slice",
                                 "pp2_uneven",
                                 "pp3",
                                 "pp2_gpipe",
                                 "dp2_pp2_zero1",
                                 "dp2_tp2_sp_zero1",
                                 "tp2_pp2_mixed_recompute_slice",
                                 "dp2_tp2_pp2_zero1_sp_full",
                                 "dp2_cp2_zero1",
                                 "dp2_zero2",
                                 "dp4_zero3",
                                 "dp8_zero1_group4",
                                 "dp4_tp2_sp_zero3_group2",
                                 "dp2_tp2_sp_zero3",
                                 "dp2_tp2_pp2_zero3_sp_selective",
                                 "tp2_pp2_cp2_zero1_sp"};

const SplitCase &splitNamed(const std::string &name) {
  for (const auto *list : {&splits(), &contextSplits(), &shareSplits(), &hybridSplits(), &chunkSplits()})
    for (const SplitCase &split : *list)
      if (split.name == name)
        return split;
  throw std::runtime_error("no split " + name);
}

class Reload : public testing::Test {
protected:
  explicit Reload(const std::string &model = "gpt2", const std::vector<std::string> &sets = {})
      : run(equivalenceRun(model, sets)), data(equivalenceData(run)) {
    fs::path memory = "/dev/shm"; // avoid slow flushes to disk
    folder =
        (fs::is_directory(memory) ? memory : fs::temp_directory_path()) / fmt::format("espalier-reload-{}", getpid());
    fs::remove_all(folder);
  }
  ~Reload() override { fs::remove_all(folder); }

  rt::pb::Plan compiled(const std::string &name) const { return compiled(splitNamed(name)); }
  rt::pb::Plan compiled(const SplitCase &split) const { return compiled(run, split); }
  static rt::pb::Plan compiled(const RunConfig &run, const SplitCase &split) {
    mlir::MLIRContext context;
    std::optional<Compiled> result = compileRun(context, run, planOf(run, split), hostOptions());
    if (!result)
      throw std::runtime_error(split.name + " does not compile");
    result->plan.mutable_settings()->set_flops_per_step(0); // skip the measurement of the machine's speed
    return std::move(result->plan);
  }

  rt::RunOptions optionsFor(int64_t steps) const {
    rt::RunOptions options;
    options.dataset = data;
    options.steps = steps;
    options.threads = 1;
    return options;
  }

  /// Trains and saves a checkpoint.
  void train(const rt::Program &program, const std::string &name) const {
    rt::RunOptions options = optionsFor(trainedSteps);
    options.checkpoint = folder / name;
    rt::runPlan(program, options);
  }

  /// Returns the losses of a program's next steps after it loads another program's checkpoint.
  std::vector<double> goOn(const rt::Program &program, const std::string &name) const {
    rt::RunOptions options = optionsFor(trainedSteps + furtherSteps);
    options.load = folder / name;
    std::vector<double> losses;
    for (const rt::StepRecord &step : rt::runPlan(program, options).steps)
      losses.push_back(step.loss);
    return losses;
  }

  void expectAllGoOnAlike(const std::vector<SplitCase> &cases) const {
    std::vector<rt::pb::Plan> plans;
    for (const SplitCase &split : cases) {
      plans.push_back(compiled(split));
      plans.back().mutable_settings()->set_resume_training(true);
      train(rt::Program(plans.back(), 1), split.name);
    }
    std::vector<std::vector<std::vector<double>>> losses(cases.size()); // by loader, then by saver
    for (size_t loader = 0; loader < cases.size(); ++loader) {
      rt::Program program(plans[loader], 1);
      for (const SplitCase &saver : cases)
        losses[loader].push_back(goOn(program, saver.name));
    }
    for (size_t saver = 0; saver < cases.size(); ++saver)
      for (size_t loader = 0; loader < cases.size(); ++loader) {
        const std::vector<double> &expected = losses[saver][saver], &actual = losses[loader][saver];
        ASSERT_EQ(actual.size(), size_t(furtherSteps)) << cases[saver].name << " under " << cases[loader].name;
        for (size_t step = 0; step < actual.size(); ++step)
          EXPECT_NEAR(actual[step], expected[step], 1e-5 * expected[step])
              << "saved under " << cases[saver].name << ", loaded under " << cases[loader].name << ", step " << step;
      }
  }

  RunConfig run;
  std::shared_ptr<const rt::Dataset> data;
  fs::path folder;
};

class ReloadExperts : public Reload {
protected:
  ReloadExperts() : Reload("mixtral") {}
};

/// Experts replicated, split and spread, with and without sharded optimizer state.
TEST_F(ReloadExperts, EachPlanResumesEachOthersCheckpoint) {
  expectAllGoOnAlike(
      {{.name = "one"},
       {.name = "ep4_zero1", .ep = 4, .zero = 1},
       {.name = "dp2_ep2", .dp = 2, .ep = 2},
       {.name = "tp2_pp2_ep2_spread", .tp = 2, .pp = 2, .ep = 2, .splitsExperts = false, .microBatches = 2}});
}

class ReloadFolded : public Reload {
protected:
  ReloadFolded() : Reload("mixtral", foldedSets()) {}
};

/// Experts over context ranks and beside them, with and without sharded optimizer state.
TEST_F(ReloadFolded, EachPlanResumesEachOthersCheckpoint) {
  std::vector<SplitCase> cases = {{.name = "one"}, {.name = "cp2_ep2_zero1", .cp = 2, .ep = 2, .zero = 1}};
  for (const SplitCase &split : foldedSplits())
    if (split.name == "cp2_ep2_over_zero1" || split.name == "tp2_cp2_ep2_whole_over_zero2" ||
        split.name == "dp2_cp4_over_zero2")
      cases.push_back(split);
  expectAllGoOnAlike(cases);
}

/// A step with a learning rate that is zero in float changes no weight, so that it shows the bits that were loaded.
TEST_F(ReloadFolded, WeightsKeepTheirBits) {
  rt::RunOptions options = optionsFor(trainedSteps);
  options.checkpoint = folder / "a";
  options.keepParameters = true;
  rt::Tensors saved = rt::runPlan(rt::Program(compiled(foldedSplits().back()), 1), options).parameters.back();
  options = optionsFor(trainedSteps + 1);
  options.load = folder / "a";
  options.keepParameters = options.acceptChanges = true;
  for (const SplitCase &split : foldedSplits()) {
    rt::pb::Plan still = compiled(split);
    still.mutable_settings()->set_resume_training(true);
    still.mutable_settings()->mutable_learning_rate()->set_peak(1e-60);
    EXPECT_EQ(rt::runPlan(rt::Program(std::move(still), 1), options).parameters.at(0), saved) << split.name;
  }
}

/// Schedules with several chunks per stage, so that neighbouring layers are on different ranks.
class ReloadChunks : public Reload {
protected:
  ReloadChunks() : Reload("gpt2", {"model.model_config.num_layers=7"}) {}
};

TEST_F(ReloadChunks, EachPlanResumesEachOthersCheckpoint) {
  std::vector<SplitCase> cases = {splitNamed("dp2_zero1")};
  for (const char *name :
       {"pp2_zero_bubble_v", "pp4_chunks2_mixed_recompute", "dp2_tp2_pp2_chunks3_zero1", "dp2_pp2_chunks2_zero3"})
    cases.push_back(splitNamed(name));
  expectAllGoOnAlike(cases);
}

TEST_F(Reload, EachPlanResumesEachOthersCheckpoint) {
  std::vector<SplitCase> cases;
  for (const char *name : names)
    cases.push_back(splitNamed(name));
  expectAllGoOnAlike(cases);
}

/// A resumed run equals the uninterrupted run bit for bit.
TEST_F(Reload, EqualsTheUninterruptedRun) {
  rt::pb::Plan plan = compiled("dp2_tp2_sp_zero1");
  plan.mutable_settings()->set_resume_training(true);
  rt::Program program(std::move(plan), 1);
  train(program, "a");
  std::vector<double> straight;
  for (const rt::StepRecord &step : rt::runPlan(program, optionsFor(trainedSteps + furtherSteps)).steps)
    straight.push_back(step.loss);
  EXPECT_EQ(goOn(program, "a"), std::vector<double>(straight.begin() + trainedSteps, straight.end()));
}

/// Without resume_training the weights start a new training: step 1, moments of zero.
TEST_F(Reload, WeightsAloneStartANewTraining) {
  rt::Program program(compiled("tp2"), 1);
  train(program, "a");
  rt::RunOptions options = optionsFor(2);
  options.load = folder / "a";
  rt::RunResult first = rt::runPlan(program, options);
  ASSERT_EQ(first.steps.size(), 2u);
  EXPECT_EQ(first.steps[0].step, 1);
  EXPECT_LT(first.steps[0].loss, rt::runPlan(program, optionsFor(1)).steps[0].loss);
}

/// An evaluation plan loads the weights, makes no step, and reads every sample once. It reports the same values as the
/// evaluation during training.
TEST_F(Reload, AnEvaluationCountsEachSampleOnce) {
  train(rt::Program(compiled("dp2"), 1), "a");
  rt::RunOptions beside = optionsFor(trainedSteps);
  beside.heldOut = data;
  beside.evalEvery = trainedSteps;
  beside.evalBatches =
      data->sampleCount() / static_cast<int64_t>(compiled("accumulate2").settings().micro_batch_size());
  double expected = rt::runPlan(rt::Program(compiled("accumulate2"), 1), beside).evaluations.at(0).loss;
  RunConfig evaluation = run;
  evaluation.runMode = "eval";
  for (const char *name : {"accumulate2", "dp2", "tp2_sp_whole_vocab", "pp3", "tp2_pp2_cp2_zero1_sp"}) {
    SplitCase split = splitNamed(name);
    split.zero = 0;
    rt::pb::Plan plan = compiled(evaluation, split);
    EXPECT_EQ(plan.entries_size(), 1) << name;
    rt::RunOptions options = optionsFor(1);
    options.load = folder / "a";
    rt::RunResult result = rt::runPlan(rt::Program(std::move(plan), 1), options);
    EXPECT_TRUE(result.steps.empty());
    ASSERT_EQ(result.evaluations.size(), 1u);
    EXPECT_EQ(result.evaluations[0].step, trainedSteps);
    EXPECT_EQ(result.evaluations[0].tokens, data->sampleCount() * data->seqLength()) << name;
    EXPECT_NEAR(result.evaluations[0].loss, expected, 1e-5 * expected) << name;
  }
}

} // namespace
} // namespace espalier
