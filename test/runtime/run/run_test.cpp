// Tests the whole runtime on a hand-built plan. Every split gives the losses, gradients and parameters of the unsplit
// model. Its gradients are compared with an oracle in double precision. Results depend neither on timing nor on
// threads.
#include "runtime/run/run.h"

#include "runtime/crash_report.h"
#include "runtime/status.h"
#include "runtime/train/initial_value.h"
#include "runtime/train/metrics.h"
#include "test/runtime/sample_plan.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

RunOptions runOptions(const SampleOptions &options, int64_t steps, int threads = 1) {
  RunOptions run;
  run.dataset = sampleData(options.features);
  run.steps = steps;
  run.threads = threads;
  run.keepGradients = run.keepParameters = true;
  return run;
}

RunResult train(const SampleOptions &options, int64_t steps, int threads = 1) {
  return runPlan(Program(samplePlan(options)), runOptions(options, steps, threads));
}

/// Loss and gradients of the toy model in double precision, at its initial values, over the first `batch` samples.
struct Oracle {
  Oracle(int layers, int64_t features, int64_t batch);
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

Oracle::Oracle(int layers, int64_t features, int64_t batch) {
  auto value = [](const std::string &name, double stddev, int64_t i) -> double {
    return initialValue(7, name, pb::Initialization::NORMAL, stddev, i);
  };
  std::shared_ptr<const Dataset> data = sampleData(features);
  double tokens = batch * features;
  for (int64_t sample = 0; sample < batch; ++sample) {
    Sample text = data->sample(sample);
    for (int64_t h = 0; h < features; ++h) {
      double token = text.tokens[h] / 256.0, e = value("embed.weight", 1, h);
      std::vector<double> x = {e * token};
      for (int l = 0; l < layers; ++l)
        x.push_back(x.back() * value(fmt::format("block.{}.weight", l), 1, h) +
                    value(fmt::format("block.{}.shift", l), 0.1, 0));
      double d = x.back() * e - text.labels[h] / 256.0;
      loss += d * d / tokens;
      double dz = 2 * d / tokens, dx = dz * e;
      auto add = [&](const std::string &name, int64_t size, int64_t i, double amount) {
        gradients[name].resize(size);
        gradients[name][i] += amount;
      };
      add("embed.weight", features, h, dz * x.back());
      for (int l = layers - 1; l >= 0; --l) {
        add(fmt::format("block.{}.weight", l), features, h, dx * x[l]);
        add(fmt::format("block.{}.shift", l), 1, 0, dx);
        dx *= value(fmt::format("block.{}.weight", l), 1, h);
      }
      add("embed.weight", features, h, dx * token);
    }
  }
}

TEST(Run, GradientsMatchTheOracle) {
  SampleOptions options;
  RunResult result = train(options, 1);
  Oracle oracle(options.layers, options.features, 8);
  EXPECT_NEAR(result.steps[0].loss, oracle.loss, 1e-5 * oracle.loss);
  ASSERT_EQ(result.gradients[0].size(), oracle.gradients.size());
  double squares = 0;
  for (const auto &[name, expected] : oracle.gradients) {
    ASSERT_EQ(result.gradients[0].at(name).size(), expected.size()) << name;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(result.gradients[0].at(name)[i], expected[i], 1e-5 * (1 + std::abs(expected[i])))
          << name << '[' << i << ']';
      squares += expected[i] * expected[i];
    }
  }
  EXPECT_NEAR(result.steps[0].gradNorm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
}

/// A peak that was measured on a busy machine may be too low. A step that exceeds the peak has no MFU. Here every step
/// exceeds the peak of any machine.
TEST(Run, NoStepHasMoreThanThePeak) {
  pb::Plan plan = samplePlan({});
  plan.mutable_settings()->set_flops_per_step(1e18);
  RunResult result = runPlan(Program(plan), runOptions({}, 3));
  for (const StepRecord &step : result.steps) {
    EXPECT_EQ(step.mfu, 0);
    EXPECT_THAT(logLine(step, 3), testing::Not(testing::HasSubstr("mfu")));
  }
}

/// The MFU of all steps uses the same peak.
TEST(Run, ThePeakDoesNotRiseWithTheRun) {
  pb::Plan plan = samplePlan({});
  plan.mutable_settings()->set_flops_per_step(1e3); // few, so that no step exceeds the peak
  RunResult result = runPlan(Program(plan), runOptions({}, 5));
  double peak = result.steps[0].mfu * result.steps[0].seconds;
  EXPECT_GT(peak, 0);
  for (const StepRecord &step : result.steps)
    EXPECT_NEAR(step.mfu * step.seconds, peak, 1e-9 * peak);
}

TEST(Run, LossFalls) {
  SampleOptions options;
  RunOptions run = runOptions(options, 60);
  run.dataset = sampleData(options.features, 8); // one batch, used in every step
  RunResult result = runPlan(Program(samplePlan(options)), run);
  EXPECT_LT(result.steps.back().loss, 0.5 * result.steps.front().loss);
}

TEST(Run, CallsBackOnceAfterEachStep) {
  RunOptions options = runOptions({}, 4);
  std::vector<double> losses;
  options.onStep = [&](const StepRecord &step) {
    losses.push_back(step.loss);
    EXPECT_EQ(step.step, static_cast<int64_t>(losses.size()));
  };
  RunResult result = runPlan(Program(samplePlan({})), options);
  ASSERT_EQ(losses.size(), 4u);
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_EQ(losses[i], result.steps[i].loss);
}

/// A split of a global batch of 8 samples of 12 features.
struct SplitCase {
  int dp, tp, pp;
  int64_t samples, microBatches;
  bool zero;
  int layers;
  double clip;
};

void PrintTo(const SplitCase &c, std::ostream *out) {
  *out << fmt::format("dp{} tp{} pp{} mbs{} mb{} zero{} layers{} clip{}", c.dp, c.tp, c.pp, c.samples, c.microBatches,
                      c.zero, c.layers, c.clip);
}

class Split : public testing::TestWithParam<SplitCase> {
protected:
  SampleOptions split() const {
    const SplitCase &c = GetParam();
    SampleOptions options;
    options.dp = c.dp;
    options.tp = c.tp;
    options.pp = c.pp;
    options.samples = c.samples;
    options.microBatches = c.microBatches;
    options.zero = c.zero;
    options.layers = c.layers;
    options.maxGradNorm = c.clip;
    return options;
  }
};

void expectNear(const Tensors &got, const Tensors &expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto &[name, values] : expected) {
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.at(name)[i], values[i], tolerance * (1 + std::abs(values[i]))) << name << '[' << i << ']';
  }
}

TEST_P(Split, TrainsLikeTheUnsplitModel) {
  SampleOptions whole;
  whole.samples = 8;
  whole.microBatches = 1;
  whole.layers = GetParam().layers;
  whole.maxGradNorm = GetParam().clip;
  RunResult expected = train(whole, 10), got = train(split(), 10);
  ASSERT_EQ(got.steps.size(), expected.steps.size());
  for (size_t i = 0; i < got.steps.size(); ++i) {
    EXPECT_NEAR(got.steps[i].loss, expected.steps[i].loss, 1e-5 * expected.steps[i].loss) << i;
    EXPECT_NEAR(got.steps[i].gradNorm, expected.steps[i].gradNorm, 1e-4 * expected.steps[i].gradNorm) << i;
    expectNear(got.gradients[i], expected.gradients[i], 1e-4);
    expectNear(got.parameters[i], expected.parameters[i], 1e-4);
  }
}

TEST_P(Split, BitsRepeatUnderAnyThreadBudget) {
  RunResult first = train(split(), 5, 1);
  for (int threads : {1, 2, 3}) {
    RunResult again = train(split(), 5, threads);
    for (size_t i = 0; i < first.steps.size(); ++i)
      EXPECT_EQ(first.steps[i].loss, again.steps[i].loss) << threads << " threads, step " << i;
    EXPECT_EQ(first.parameters, again.parameters) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Split,
                         testing::Values(SplitCase{1, 1, 1, 2, 4, false, 3, 0}, SplitCase{2, 1, 1, 2, 2, false, 3, 0.5},
                                         SplitCase{4, 1, 1, 1, 2, false, 3, 0}, SplitCase{1, 2, 1, 4, 2, false, 3, 0.5},
                                         SplitCase{1, 3, 1, 8, 1, false, 3, 0}, SplitCase{1, 1, 2, 1, 8, false, 3, 0.5},
                                         SplitCase{1, 1, 3, 2, 4, false, 5, 0}, SplitCase{1, 1, 4, 1, 8, false, 3, 0},
                                         SplitCase{2, 2, 1, 1, 4, false, 3, 0}, SplitCase{2, 2, 2, 1, 4, false, 3, 0.5},
                                         SplitCase{2, 1, 1, 2, 2, true, 3, 0.5}, SplitCase{4, 1, 1, 2, 1, true, 3, 0},
                                         SplitCase{8, 1, 1, 1, 1, true, 3, 0}, SplitCase{2, 2, 2, 2, 2, true, 3, 0.5},
                                         SplitCase{2, 1, 3, 1, 4, true, 4, 0}));

TEST(Run, ClippingBoundsTheUpdateNotTheReportedNorm) {
  SampleOptions options;
  RunResult free = train(options, 1);
  options.maxGradNorm = 1e-3;
  RunResult clipped = train(options, 1);
  EXPECT_EQ(free.steps[0].gradNorm, clipped.steps[0].gradNorm);
  EXPECT_NE(free.parameters, clipped.parameters);
}

TEST(Run, OverflowSkipsTheStepAndLowersTheScale) {
  SampleOptions options;
  options.dynamicScale = true; // starts at 2^120, where squares of gradients overflow
  options.dp = 2;
  options.microBatches = 2;
  RunResult result = train(options, 5);
  EXPECT_FALSE(result.steps[0].isApplied);
  EXPECT_TRUE(result.steps[2].isApplied);
  EXPECT_EQ(result.steps[0].lossScale, 0x1p60);
  EXPECT_EQ(result.steps[1].lossScale, 1);
  for (const auto &[name, values] : result.parameters[0])
    for (float value : values)
      EXPECT_TRUE(std::isfinite(value)) << name;
}

TEST(Run, EvaluatesTheHeldOutSplitWithoutTouchingTheRun) {
  SampleOptions options;
  options.pp = 2;
  RunResult plain = train(options, 4);
  RunOptions run = runOptions(options, 4);
  run.heldOut = sampleData(options.features, 16);
  run.evalEvery = 2;
  run.evalBatches = 4;
  RunResult evaluated = runPlan(Program(samplePlan(options)), run);
  EXPECT_EQ(plain.parameters, evaluated.parameters);
  ASSERT_EQ(evaluated.evaluations.size(), 2u);
  EXPECT_EQ(evaluated.evaluations[0].step, 2);
  EXPECT_EQ(evaluated.evaluations[0].tokens, 4 * 2 * options.features);
  EXPECT_GT(evaluated.evaluations[0].loss, 0);
}

/// A rank that sleeps in each step is slow, and the other ranks, which wait for it, are not.
TEST(Run, NamesASlowRank) {
  SampleOptions options;
  options.dp = options.pp = 2;
  RunOptions run = runOptions(options, 4);
  run.compareEvery = 1;
  run.metrics = std::filesystem::temp_directory_path() / fmt::format("espalier-slow-{}.jsonl", getpid());
  run.fault = Fault{/*rank=*/3, /*step=*/-1, /*action=*/2, /*instruction=*/0, Fault::Sleep};
  runPlan(Program(samplePlan(options)), run);
  std::ifstream stream(run.metrics);
  std::vector<nlohmann::json> slow;
  for (std::string line; std::getline(stream, line);)
    if (nlohmann::json json = nlohmann::json::parse(line); json.contains("slow_after_step"))
      slow.push_back(json);
  std::filesystem::remove(run.metrics);
  ASSERT_GE(slow.size(), 1U); // other ranks, which compute for microseconds, may seem slow on a loaded machine, too
  EXPECT_EQ(slow[0]["slow_after_step"], 3); // after three windows
  ASSERT_GE(slow[0]["slow_ranks"].size(), 1U);
  EXPECT_EQ(slow[0]["slow_ranks"][0]["rank"], 3); // the slowest
  EXPECT_GT(slow[0]["slow_ranks"][0]["compute_seconds"], 0.45);
  EXPECT_LT(slow[0]["slow_ranks"][0]["median_seconds"], 0.2);
}

TEST(Run, FailureOfOneRankStopsAllAndNamesThePlace) {
  SampleOptions options;
  options.dp = options.tp = options.pp = 2;
  options.microBatches = 2;
  RunOptions run = runOptions(options, 1000000);
  run.keepGradients = run.keepParameters = false;
  run.fault = Fault{/*rank=*/5, /*step=*/3, /*action=*/2, /*instruction=*/0};
  try {
    runPlan(Program(samplePlan(options)), run);
    FAIL() << "the fault did not stop the run";
  } catch (const RankFailure &error) {
    EXPECT_EQ(error.failure.rank, 5);
    EXPECT_EQ(error.failure.stage, 1);
    EXPECT_EQ(error.failure.step, 3);
    EXPECT_THAT(error.what(), testing::HasSubstr("RUN forward of block.2 .. head, micro-batch 0"));
    EXPECT_THAT(error.what(), testing::HasSubstr("block.forward of block.2"));
    EXPECT_THAT(error.what(), testing::HasSubstr("scale at toy.yaml:3:5"));
    EXPECT_THAT(error.what(), testing::HasSubstr("injected fault"));
  }
}

TEST(RunDeathTest, CrashOfOneRankEndsTheProcessAndNamesThePlace) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  SampleOptions options;
  options.dp = options.tp = options.pp = 2;
  options.microBatches = 2;
  RunOptions run = runOptions(options, 1000000);
  run.fault = Fault{/*rank=*/5, /*step=*/3, /*action=*/2, /*instruction=*/0, Fault::Crash};
  auto crash = [&] {
    reportCrashes();
    runPlan(Program(samplePlan(options)), run);
  };
  EXPECT_EXIT(
      crash(), testing::ExitedWithCode(1),
      "rank 5 \\(stage 1\\) in step 4, .*RUN forward of block.2 .. head, micro-batch 0.*block.forward of block.2, "
      "scale at toy.yaml:3:5: bad address 0x40; all ranks stopped");
}

TEST(RunDeathTest, SignalsOfProcessesReportNoAddress) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    RunOptions run = runOptions({}, 2);
    run.inspect = [signal](const Executor &executor) {
      CrashSite site(&executor);
      raise(signal);
    };
    auto crash = [&] {
      reportCrashes();
      runPlan(Program(samplePlan({})), run);
    };
    EXPECT_EXIT(crash(), testing::ExitedWithCode(1),
                fmt::format("in step 1: its process was killed by signal {} \\({}\\), which process [0-9]+ sent; all "
                            "ranks stopped",
                            signal, strsignal(signal)));
  }
}

TEST(Run, RefusesPlansThatDoNotTrain) {
  SampleOptions options;
  auto refusal = [&](const std::function<void(pb::Plan &)> &change) -> std::string {
    pb::Plan plan = samplePlan(options);
    change(plan);
    try {
      runPlan(Program(plan), runOptions(options, 1));
      return "";
    } catch (const std::runtime_error &error) {
      return error.what();
    }
  };
  auto exchange = [](pb::Plan &plan, int index) { return plan.mutable_stages(0)->mutable_exchanges(index); };
  auto rename = [&](pb::Plan &plan, int index, const char *name) {
    exchange(plan, index)->set_name(name);
    plan.mutable_values(static_cast<int>(exchange(plan, index)->buffer().value()))->set_name(name);
  };
  EXPECT_THAT(refusal([&](pb::Plan &plan) { rename(plan, 1, "images"); }),
              testing::HasSubstr("the plan reads input 'images'"));
  EXPECT_THAT(refusal([&](pb::Plan &plan) { rename(plan, 0, "loss_weights"); }),
              testing::HasSubstr("the plan's input 'loss_weights' has 96 bytes of I32, samples give 96 of F32"));
  auto halveSamples = [](pb::Plan &plan) {
    plan.mutable_settings()->set_micro_batch_size(1);
    plan.mutable_settings()->set_global_batch(4);
  };
  EXPECT_THAT(refusal(halveSamples),
              testing::HasSubstr("the plan's input 'tokens' has 96 bytes of I32, samples give 48 of I32"));
  EXPECT_THAT(refusal([&](pb::Plan &plan) { exchange(plan, 3)->set_name("sums"); }),
              testing::HasSubstr("stage 0: does not exchange 'results', 64 bytes, in train_step"));
  EXPECT_THAT(refusal([&](pb::Plan &plan) { plan.mutable_entries(1)->set_name("decode"); }),
              testing::HasSubstr("the plan has no entry 'evaluate': it is not a plan for training"));
}

} // namespace
} // namespace espalier::rt
