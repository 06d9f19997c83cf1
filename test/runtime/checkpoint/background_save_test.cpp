// Checkpoints that are written while training goes on: the same bytes as those written at once, complete under their
// final name or not at all, whatever ends the run. ESPALIER_KILLS is the number of kills at random points, and
// ESPALIER_KILLS_SEED the seed of these points.
#include "runtime/background_thread.h"
#include "runtime/checkpoint/unfinished.h"
#include "runtime/train/rank_requests.h"
#include "test/runtime/checkpoint/checkpoint_fixture.h"
#include "test/sanitizer.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class BackgroundSaves : public CheckpointTest {
protected:
  RunOptions background(int64_t steps, int64_t saveEvery) const {
    RunOptions run = options(steps, /*resume=*/false, saveEvery);
    run.save = SaveMode::background;
    run.keepParameters = false;
    return run;
  }

  /// Returns the names and the contents of a checkpoint's files.
  static std::map<std::string, std::string> content(const Path &checkpoint) {
    std::map<std::string, std::string> files;
    for (const auto &entry : fs::directory_iterator(checkpoint))
      files[entry.path().filename()] = read(entry.path());
    return files;
  }

  SampleOptions eightRanks() const {
    SampleOptions model;
    model.dp = model.tp = model.pp = 2;
    model.microBatches = 2;
    model.zero = true;
    return model;
  }
};

TEST_F(BackgroundSaves, WriteTheBytesOfASynchronousSave) {
  for (const SampleOptions &model : {SampleOptions(), eightRanks(), SampleOptions{.dp = 2, .dynamicScale = true}}) {
    Program program(samplePlan(model));
    fs::remove_all(folder);
    RunOptions run = background(12, /*saveEvery=*/6);
    run.save = SaveMode::sync;
    runPlan(program, run);
    std::map<std::string, std::string> expected = content(folder / "step-00000006");
    ASSERT_GE(expected.size(), 2u);
    for (Comm comm : {Comm::local, Comm::shm}) {
      fs::remove_all(folder);
      run.save = SaveMode::background;
      run.comm = comm;
      RunResult result = runPlan(program, run);
      EXPECT_EQ(content(folder / "step-00000006"), expected);
      EXPECT_EQ(latest(), "step-00000012");
      ASSERT_EQ(result.saves.size(), 2u);
      EXPECT_EQ(result.saves[0].step, 6);
      EXPECT_GT(result.saves[0].afterStep, 6); // the next loss has proven the weights
      EXPECT_EQ(result.saves[0].name, "step-00000006");
      EXPECT_EQ(result.saves[0].bytes, readManifest(folder / "step-00000006").bytes());
      EXPECT_GT(result.saves[0].writtenSeconds, 0);
      EXPECT_EQ(result.saves[1].afterStep, 12);
    }
  }
}

TEST_F(BackgroundSaves, DelayADueSaveWhileOneIsInFlight) {
  RunOptions run = background(9, /*saveEvery=*/1);
  run.log = true;
  testing::internal::CaptureStdout();
  RunResult result = runPlan(Program(samplePlan(eightRanks())), run);
  std::string output = testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, HasSubstr("the checkpoint due after step 2 waits until that of step 1 is written\n"));
  EXPECT_THAT(output, testing::Not(HasSubstr("the checkpoint due after step 3 waits"))); // reported once
  EXPECT_THAT(output, HasSubstr(fmt::format("saved {}/step-00000001: ", folder.string())));
  ASSERT_GE(result.saves.size(), 2u);
  EXPECT_EQ(result.saves.back().step, 9);
  for (const SaveRecord &save : result.saves) {
    EXPECT_TRUE(faults(folder / save.name).empty()) << save.name;
    EXPECT_GE(save.afterStep, save.step);
  }
  EXPECT_EQ(checkpointNames(folder).size(), result.saves.size());
}

TEST_F(BackgroundSaves, CountAsKeptCheckpoints) {
  RunOptions run = background(400, /*saveEvery=*/4); // a slow disk has time for three
  run.keep = 2;
  RunResult result = runPlan(Program(samplePlan(eightRanks())), run);
  ASSERT_GE(result.saves.size(), 3u);
  EXPECT_THAT(checkpointNames(folder), ElementsAre("step-00000400", result.saves[result.saves.size() - 2].name));
}

// The loss of the step after the save shows that the weights are ruined.
TEST_F(BackgroundSaves, RuinedWeightsAreNotSaved) {
  SampleOptions model = eightRanks();
  model.peakRate = 1e30;
  RunResult result = runPlan(Program(samplePlan(model)), background(10, /*saveEvery=*/1));
  EXPECT_EQ(result.divergence, "the loss of step 2 is not finite");
  EXPECT_TRUE(result.saves.empty());
  EXPECT_EQ(latestCheckpoint(folder), "");
  for (const auto &entry : fs::directory_iterator(folder))
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
}

TEST_F(BackgroundSaves, ASignalWaitsForTheSaveInFlight) {
  for (Comm comm : {Comm::local, Comm::shm}) {
    fs::remove_all(folder);
    RunOptions run = background(1000, /*saveEvery=*/3);
    run.comm = comm;
    run.stopSignal = [asked = 0]() mutable { return ++asked > 4 ? SIGTERM : 0; }; // in the entry after the save began
    RunResult result = runPlan(Program(samplePlan(eightRanks())), run);
    EXPECT_EQ(result.stopSignal, SIGTERM);
    ASSERT_EQ(result.saves.size(), 2u);
    EXPECT_EQ(result.saves[0].step, 3);
    EXPECT_EQ(result.saves[1].step, result.steps.back().step);
    EXPECT_TRUE(faults(folder / "step-00000003").empty());
    EXPECT_TRUE(faults(folder / latest()).empty());
  }
}

// A rank fails while the checkpoint of the step before is being written. The failure is reported as without a save.
TEST_F(BackgroundSaves, AFailingRankIsReported) {
  for (Comm comm : {Comm::local, Comm::shm})
    for (Fault::Kind kind : {Fault::Exception, Fault::Kill}) {
      if (comm == Comm::local && kind == Fault::Kill) // kills all ranks
        continue;
      fs::remove_all(folder);
      RunOptions run = background(20, /*saveEvery=*/5);
      run.comm = comm;
      run.fault = Fault{.rank = 3, .step = 5, .action = 2, .kind = kind};
      try {
        runPlan(Program(samplePlan(eightRanks())), run);
        ADD_FAILURE() << "the run has not failed";
      } catch (const RankFailure &failure) {
        EXPECT_THAT(failure.what(), HasSubstr("rank 3"));
        EXPECT_THAT(failure.what(), HasSubstr(kind == Fault::Kill ? "signal 9" : "injected fault"));
      }
      for (const std::string &name : checkpointNames(folder))
        EXPECT_TRUE(faults(folder / name).empty()) << name;
    }
}

// Until all ranks have written their files, and the loss is known, the checkpoint before it is the latest.
TEST_F(BackgroundSaves, ResumeBitForBit) {
  SampleOptions model = eightRanks();
  RunOptions straight = background(16, 0);
  straight.checkpoint.clear();
  RunResult whole = runPlan(Program(samplePlan(model)), straight);
  runPlan(Program(samplePlan(model)), background(8, /*saveEvery=*/4));
  fs::remove_all(folder / "step-00000008");
  RunOptions run = background(16, /*saveEvery=*/4);
  run.resume = true;
  testing::internal::CaptureStderr(); // `latest` names the removed checkpoint
  RunResult rest = runPlan(Program(samplePlan(model)), run);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("continuing with step-00000004"));
  ASSERT_EQ(rest.steps.size(), 12u);
  for (size_t i = 0; i < rest.steps.size(); ++i)
    EXPECT_EQ(rest.steps[i].loss, whole.steps[4 + i].loss) << i;
}

uint64_t numberOf(const char *variable, uint64_t otherwise) {
  const char *text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Kills a run at a random point of a save or of its start, and starts it again from what is there.
class KilledRuns : public BackgroundSaves {
protected:
  /// Returns the process of a run that goes on until it is killed. Its processes form a group.
  pid_t start(const SampleOptions &model, Comm comm) const {
    pid_t child = fork();
    setpgid(child, 0); // in both processes, so that the group exists before any of them goes on
    if (child != 0)
      return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::freopen((folder.string() + ".log").c_str(), "w", stderr);
    RunOptions run = background(1000000, /*saveEvery=*/2);
    run.dataset = sampleData(model.features, 64);
    run.comm = comm;
    run.keep = 2;
    run.resume = !checkpointNames(folder).empty();
    try {
      runPlan(Program(samplePlan(model)), run);
    } catch (const std::exception &error) {
      fmt::print(stderr, "{}\n", error.what());
    }
    std::fflush(nullptr);
    _exit(1); // the run has ended by itself
  }

  /// Returns the step of the newest checkpoint, or 0.
  int64_t newestStep() const {
    std::vector<std::string> names = checkpointNames(folder);
    return names.empty() ? 0 : readManifest(folder / names.front()).state.step;
  }

  /// Waits for a checkpoint of a later step than `step`. Returns false if none comes.
  bool hasNewerThan(int64_t step) const {
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60 * slowdown);
    while (newestStep() <= step && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return newestStep() > step;
  }
};

// Half of the kills are followed by a supervisor that completes the save in flight.
TEST_F(KilledRuns, KeepEveryFinishedCheckpoint) {
  constexpr int cases = 30;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  uint64_t kills = numberOf("ESPALIER_KILLS", cases);
  std::mt19937_64 random(numberOf("ESPALIER_KILLS_SEED", 1));
  SampleOptions model = eightRanks();
  model.features = 1200;
  int64_t before = 0;
  for (uint64_t kill = 0; kill < kills; ++kill) {
    Comm comm = random() % 2 == 0 ? Comm::local : Comm::shm;
    pid_t child = start(model, comm);
    if (random() % 2 == 0)
      EXPECT_TRUE(hasNewerThan(before)) << "hangs after kill " << kill << ": " << read(folder.string() + ".log");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    int64_t finished = newestStep(); // before the kill
    ::killpg(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    while (waitpid(-1, nullptr, 0) > 0) // its ranks, which hold the lock of the folder until they end
      ;
    ASSERT_TRUE(WIFSIGNALED(status)) << "the run ended by itself: " << read(folder.string() + ".log");
    if (random() % 2 == 0)
      completeSave(folder);
    int64_t now = newestStep();
    EXPECT_GE(finished, before) << "kill " << kill;
    EXPECT_GE(now, finished) << "kill " << kill;
    for (const std::string &name : checkpointNames(folder))
      EXPECT_TRUE(faults(folder / name).empty()) << name << ", kill " << kill;
    before = now;
  }
  RunOptions run = background(before + 2, 0);
  run.dataset = sampleData(model.features, 64);
  run.resume = true;
  RunResult result = runPlan(Program(samplePlan(model)), run);
  EXPECT_EQ(result.steps.size(), 2u);
  fs::remove(folder.string() + ".log");
}

TEST(RankRequests, KeepBothKindsApart) {
  for (int ranks : {1, 8, 100000}) {
    float writing = 0, stopping = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      writing += RankRequests{.writes = true}.summand();
      stopping += RankRequests{.stops = true, .writes = rank % 2 == 0}.summand();
    }
    EXPECT_FALSE(RankRequests::ofSum(writing).stops) << ranks;
    EXPECT_TRUE(RankRequests::ofSum(writing).writes) << ranks;
    EXPECT_TRUE(RankRequests::ofSum(stopping).stops) << ranks;
    EXPECT_TRUE(RankRequests::ofSum(writing + RankRequests{.stops = true}.summand()).stops) << ranks;
  }
  EXPECT_FALSE(RankRequests::ofSum(0).writes);
}

TEST(BackgroundThread, RunsOneJobAfterTheOther) {
  int sum = 0;
  {
    BackgroundThread thread;
    for (int job = 1; job <= 100; ++job) {
      thread.start([&sum, job] { sum += job; });
      thread.wait();
      EXPECT_FALSE(thread.isBusy());
    }
    thread.start([&sum] { sum *= 2; });
  } // waits for the job
  EXPECT_EQ(sum, 2 * 5050);
}

} // namespace
} // namespace espalier::rt
