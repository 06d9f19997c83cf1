// Runs that end early: by a signal, by divergence, or because a rank cannot start. All ranks end together, and the last
// checkpoint is valid.
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/run/run.h"
#include "runtime/run/summary.h"
#include "runtime/thread_pool.h"
#include "runtime/train/stop.h"
#include "test/runtime/sample_plan.h"

#include <atomic>
#include <csignal>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class RunEnd : public testing::Test {
protected:
  RunEnd() {
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    folder = fs::temp_directory_path() / fmt::format("espalier-{}-{}", info->name(), getpid());
    fs::remove_all(folder);
    options.dp = options.tp = options.pp = 2;
    options.microBatches = 2;
  }
  ~RunEnd() override { fs::remove_all(folder); }

  RunOptions runOptions(int64_t steps) const {
    RunOptions run;
    run.dataset = run.heldOut = sampleData(options.features, 64);
    run.steps = steps;
    run.threads = 1;
    run.checkpoint = folder;
    return run;
  }

  SampleOptions options;
  fs::path folder;
};

/// A run of many steps keeps the records of the last ones alone, unless its caller needs all.
TEST_F(RunEnd, MemoryDoesNotGrowWithSteps) {
  options = {};
  RunOptions run = runOptions(2500);
  run.checkpoint.clear();
  run.keepSteps = false;
  RunResult result = runPlan(Program(samplePlan(options)), run);
  EXPECT_LT(result.steps.size(), 2000u);
  EXPECT_GE(result.steps.size(), 1000u);
  EXPECT_EQ(result.steps.back().step, 2500);
  EXPECT_EQ(result.stepCount, 2500);
  EXPECT_GT(result.stepSeconds, 0);
  EXPECT_TRUE(result.isAnyApplied);
  EXPECT_THAT(closingSummary(result, run), HasSubstr("done after step 2500 of 2500: 2500 steps in"));
}

class RunEndOfSaves : public RunEnd, public testing::WithParamInterface<SaveMode> {};

INSTANTIATE_TEST_SUITE_P(Modes, RunEndOfSaves, testing::Values(SaveMode::sync, SaveMode::background),
                         [](const auto &info) { return info.param == SaveMode::sync ? "sync" : "background"; });

/// The signal arrives at each entry of a run with evaluations and checkpoints in turn. All eight ranks end after the
/// same entry. The saved state resumes bit for bit.
TEST_P(RunEndOfSaves, StopsAtAnyEntryAndResumes) {
  int entries = GetParam() == SaveMode::sync ? 12 : 11; // a synchronous save evaluates its weights
  Program program(samplePlan(options));
  RunOptions straight = runOptions(6);
  straight.evalEvery = 2;
  straight.evalBatches = 1;
  straight.checkpoint.clear();
  RunResult whole = runPlan(program, straight);
  for (int when = 0; when <= entries; ++when) {
    fs::remove_all(folder);
    RunOptions run = runOptions(6);
    run.evalEvery = 2;
    run.evalBatches = 1;
    run.saveEvery = 3;
    run.save = GetParam();
    std::atomic<int> asked = 0;
    run.stopSignal = [&] { return asked++ >= when ? SIGTERM : 0; };
    RunResult stopped = runPlan(program, run);
    EXPECT_EQ(stopped.stopSignal, when < entries ? SIGTERM : 0) << when;
    int64_t last = stopped.steps.empty() ? 0 : stopped.steps.back().step;
    std::string checkpoint = fs::exists(folder) ? latestCheckpoint(folder) : "";
    EXPECT_EQ(checkpoint, last ? (folder / fmt::format("step-{:08}", last)).string() : "") << when;
    if (when == 0) {
      EXPECT_EQ(last, 0);
      continue;
    }
    run.stopSignal = nullptr;
    run.resume = true;
    RunResult rest = runPlan(program, run);
    ASSERT_EQ(stopped.steps.size() + rest.steps.size(), 6u) << when;
    for (int64_t step = 0; step < 6; ++step)
      EXPECT_EQ(whole.steps[step].loss, (step < last ? stopped.steps[step] : rest.steps[step - last]).loss)
          << when << ", step " << step;
  }
}

TEST_F(RunEnd, TheSummaryReportsTheState) {
  RunOptions run = runOptions(50);
  run.stopSignal = [asked = 0]() mutable { return ++asked > 3 ? SIGINT : 0; };
  RunResult result = runPlan(Program(samplePlan(options)), run);
  EXPECT_THAT(closingSummary(result, run), HasSubstr("stopped by SIGINT after step 3 of 50: 3 steps in "));
  EXPECT_THAT(closingSummary(result, run), HasSubstr("/step-00000003, --resume continues from it"));
  run.checkpoint.clear();
  EXPECT_THAT(closingSummary(result, run), HasSubstr("; nothing is saved without --checkpoint"));
}

/// At this rate, the weights are finite after the first update, but the next loss is not.
TEST_F(RunEnd, RuinedWeightsAreNotSaved) {
  options.peakRate = 1e30;
  RunOptions run = runOptions(10);
  run.saveEvery = 1;
  run.save = SaveMode::sync;
  Program program(samplePlan(options));
  RunResult result = runPlan(program, run);
  EXPECT_EQ(result.divergence, "the weights after step 1 give a loss that is not finite");
  EXPECT_EQ(latestCheckpoint(folder), "");
  EXPECT_THAT(divergenceSentence(result, run, program.plan().settings()), HasSubstr("there is no good checkpoint in "));
}

TEST_F(RunEnd, TheGoodCheckpointStaysTheLatest) {
  runPlan(Program(samplePlan(options)), runOptions(2));
  options.peakRate = 1e30;
  for (auto [saveEvery, save] : {std::pair(0, SaveMode::sync), {1, SaveMode::sync}, {1, SaveMode::background}}) {
    RunOptions run = runOptions(30);
    run.resume = run.acceptChanges = true;
    run.saveEvery = saveEvery;
    run.save = save;
    bool evaluates = saveEvery > 0 && save == SaveMode::sync; // the weights, before they are saved
    Program program(samplePlan(options));
    RunResult result = runPlan(program, run);
    EXPECT_EQ(result.divergence, evaluates ? "the weights after step 3 give a loss that is not finite"
                                           : "the loss of step 4 is not finite");
    EXPECT_EQ(result.steps.size(), evaluates ? 1u : 2u);
    EXPECT_EQ(latestCheckpoint(folder), folder / "step-00000002");
    EXPECT_THAT(divergenceSentence(result, run, program.plan().settings()),
                HasSubstr("the last good checkpoint is " + folder.string()));
  }
}

/// At 2^120 the squares of gradients overflow, and the minimum scale prevents a decrease.
TEST_F(RunEnd, SkippedStepsEndTheRunAndAreNotSaved) {
  options.dynamicScale = true;
  pb::Plan plan = samplePlan(options);
  plan.mutable_settings()->set_minimum_loss_scale(0x1p120);
  plan.mutable_settings()->set_max_skipped_steps(4);
  RunOptions run = runOptions(30);
  run.saveEvery = 1;
  RunResult result = runPlan(Program(plan), run);
  EXPECT_THAT(result.divergence, HasSubstr("4 steps in a row were skipped, up to step 4"));
  EXPECT_EQ(result.steps.size(), 4u);
  EXPECT_EQ(latestCheckpoint(folder), "");
}

/// The scale falls to 1 in two steps. Due checkpoints wait for the first applied step.
TEST_F(RunEnd, CheckpointsWaitWhileStepsAreSkipped) {
  options.dynamicScale = true;
  RunOptions run = runOptions(4);
  run.saveEvery = 1;
  run.log = true;
  testing::internal::CaptureStdout();
  RunResult result = runPlan(Program(samplePlan(options)), run);
  std::string output = testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, HasSubstr("the checkpoint due after step 1 waits for the next step that is applied\n"));
  EXPECT_THAT(output, Not(HasSubstr("the checkpoint due after step 2"))); // reported once
  ASSERT_EQ(result.divergence, "");
  ASSERT_FALSE(result.steps[1].isApplied);
  ASSERT_TRUE(result.steps[2].isApplied);
  EXPECT_FALSE(fs::exists(folder / "step-00000001") || fs::exists(folder / "step-00000002"));
  EXPECT_TRUE(fs::exists(folder / "step-00000003"));
}

/// Runs without the permission to create threads. The limit applies only to unprivileged users, so a child process
/// drops its privileges.
void runWithoutThreads(const SampleOptions &options, int threads) {
  RunOptions run;
  run.dataset = sampleData(options.features, 64);
  run.steps = 2;
  run.threads = threads;
  Program program(samplePlan(options));
  rlimit few = {3, 3};
  if (setrlimit(RLIMIT_NPROC, &few) != 0 || (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)))
    _exit(1);
  try {
    runPlan(program, run);
  } catch (const std::exception &error) {
    fmt::print(stderr, "{}\n", error.what());
    _exit(7);
  }
  _exit(0);
}

TEST_F(RunEnd, ARankThatCannotStartStopsAll) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(runWithoutThreads(options, /*threads=*/1), testing::ExitedWithCode(7),
              "rank [1-7]: the system refuses a thread: .*ulimit -u.*all ranks stopped");
  options.dp = options.tp = 1; // two ranks, whose thread pools cannot be created
  EXPECT_EXIT(runWithoutThreads(options, /*threads=*/4), testing::ExitedWithCode(7),
              "rank [01]: the system refuses a thread");
}

TEST(ThreadPool, EndsIfAThreadCannotBeCreated) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto make = [] {
    rlimit few = {3, 3};
    if (setrlimit(RLIMIT_NPROC, &few) != 0 || (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)))
      _exit(1);
    try {
      ThreadPool pool(64, 0);
    } catch (const std::runtime_error &error) {
      fmt::print(stderr, "{}\n", error.what());
      _exit(7);
    }
  };
  EXPECT_EXIT(make(), testing::ExitedWithCode(7), "the system refuses a thread: .*--threads");
}

} // namespace
} // namespace espalier::rt
