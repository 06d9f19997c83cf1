// Tests a full disk: a file system of a few pages, which only root can mount. The tests are skipped for other users.
#include "test/runtime/checkpoint/checkpoint_fixture.h"

#include "messages/write_fault.h"
#include "runtime/checkpoint/checkpoint.h"
#include "test/sanitizer.h"

#include <chrono>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <thread>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Disk : public CheckpointTest {
protected:
  void SetUp() override {
    fs::create_directories(folder);
    isMounted = ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=256k") == 0;
    if (!isMounted)
      GTEST_SKIP() << "no file system can be mounted here";
  }
  ~Disk() override {
    if (isMounted)
      ::umount(folder.c_str());
  }

  uint64_t freeBytes() const {
    struct statvfs status = {};
    EXPECT_EQ(::statvfs(folder.c_str(), &status), 0);
    return status.f_bavail * status.f_frsize;
  }

  /// Fills the disk until `bytes` are free.
  void fill(uint64_t bytes) const { write(folder / "filler", std::string(freeBytes() - bytes, 'x')); }

  bool isMounted = false;
};

/// Fills the disk before the step after `full`. Frees it before the step after `emptied`.
RunOptions withFullDisk(RunOptions run, const std::function<void()> &fill, int full, const std::function<void()> &empty,
                        int emptied) {
  auto steps = std::make_shared<int>(0);
  run.inspect = [=](const Executor &) {
    ++*steps;
    if (*steps == full)
      fill();
    if (*steps == emptied)
      empty();
  };
  return run;
}

TEST_F(Disk, ReportsAFailedSaveAndRetries) {
  RunOptions run = withFullDisk(
      options(6, /*resume=*/false, /*saveEvery=*/2), [this] { fill(4096); }, 3,
      [this] { fs::remove(folder / "filler"); }, 5);
  Resumed resumed = resume(samplePlan({}), run);
  EXPECT_EQ(resumed.result.steps.size(), 6u);
  EXPECT_THAT(resumed.aloud, HasSubstr("the checkpoint of step 4 is not written"));
  EXPECT_THAT(resumed.aloud,
              HasSubstr("No space left on device; the last good one is " + (folder / "step-00000002").string() +
                        "; training continues and the next save tries again"));
  EXPECT_EQ(checkpointNames(folder), (std::vector<std::string>{"step-00000006", "step-00000002"}));
  EXPECT_TRUE(faults(folder / latest()).empty());
  for (const auto &entry : fs::directory_iterator(folder))
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
}

TEST_F(Disk, ReportsAFailedBackgroundSaveAndRetries) {
  for (Comm comm : {Comm::local, Comm::shm}) {
    fs::remove_all(folder / "c");
    RunOptions run = withFullDisk(
        options(30, /*resume=*/false, /*saveEvery=*/10), [this] { fill(4096); }, 20,
        [this] { fs::remove(folder / "filler"); }, 29);
    run.inspect = [inner = run.inspect](const Executor &executor) { // steps that last longer than a save
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * slowdown));
      inner(executor);
    };
    run.checkpoint = folder / "c";
    run.save = SaveMode::background;
    run.keepParameters = false;
    run.comm = comm;
    Resumed resumed = resume(samplePlan({}), run);
    EXPECT_EQ(resumed.error, "");
    EXPECT_EQ(resumed.result.steps.size(), 30u);
    EXPECT_THAT(resumed.aloud, HasSubstr("the checkpoint of step 20 is not written"));
    EXPECT_THAT(resumed.aloud,
                HasSubstr("No space left on device; the last good one is " + (folder / "c/step-00000010").string() +
                          "; training continues and the next save tries again"));
    EXPECT_EQ(checkpointNames(folder / "c"), (std::vector<std::string>{"step-00000030", "step-00000010"}));
    EXPECT_TRUE(faults(folder / "c/step-00000030").empty());
    ASSERT_EQ(resumed.result.saves.size(), 2u);
    for (const auto &entry : fs::directory_iterator(folder / "c"))
      EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
  }
}

/// Returns the error of a run that must fail.
std::string failureOf(const RunOptions &run) {
  testing::internal::CaptureStderr();
  std::string text;
  try {
    runPlan(Program(samplePlan({})), run);
  } catch (const RankFailure &failure) {
    text = failure.what();
  }
  testing::internal::GetCapturedStderr();
  return text;
}

// A good save between failed ones starts the count again. The run ends with its last good checkpoint.
TEST_F(Disk, FailedSavesInARowEndTheRun) {
  for (SaveMode mode : {SaveMode::sync, SaveMode::background}) {
    fs::remove_all(folder / "c");
    auto steps = std::make_shared<int>(0);
    RunOptions run = options(40, /*resume=*/false, /*saveEvery=*/4);
    run.checkpoint = folder / "c";
    run.save = mode;
    run.keep = 1;
    run.maxUnsaved = 2;
    run.keepParameters = false;
    run.inspect = [this, steps](const Executor &) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * slowdown)); // a save takes less than four steps
      ++*steps;
      if (*steps == 6 || *steps == 14)
        fill(4096);
      if (*steps == 10)
        fs::remove(folder / "filler");
    };
    std::string failure = failureOf(run);
    EXPECT_THAT(failure, HasSubstr("the checkpoint of step 20 is not written: "));
    EXPECT_THAT(failure, HasSubstr("; the last good one is " + (folder / "c/step-00000012").string() +
                                   "; 2 saves failed since, and --max-unsaved 2 ends the run"));
    EXPECT_EQ(checkpointNames(folder / "c"), std::vector<std::string>{"step-00000012"});
    EXPECT_GE(*steps, 20);
    EXPECT_LE(*steps, 24);
    fs::remove(folder / "filler");
  }
}

TEST_F(Disk, AFailedLastSaveFailsTheRun) {
  RunOptions run = withFullDisk(options(4, /*resume=*/false, /*saveEvery=*/2), [this] { fill(4096); }, 3, [] {}, 0);
  testing::internal::CaptureStderr();
  try {
    runPlan(Program(samplePlan({})), run);
    ADD_FAILURE();
  } catch (const RankFailure &failure) {
    EXPECT_THAT(failure.what(), HasSubstr("in step 4: the checkpoint of step 4 is not written"));
  }
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(latest(), "step-00000002");
  fs::remove(folder / "filler");
  EXPECT_EQ(train({}, 4, /*resume=*/true).steps.size(), 2u);
}

TEST_F(Disk, ChecksTheFreeSpaceBeforeTraining) {
  uint64_t needed = checkpointBytes(Program(samplePlan({.features = 1200})));
  EXPECT_GT(needed, 40000u);
  fill(16384);
  RunOptions run = options(2);
  run.dataset = sampleData(1200, 40);
  Resumed refused = resume(samplePlan({.features = 1200}), run);
  EXPECT_THAT(refused.error, HasSubstr("are free there; make room or give another folder"));
  EXPECT_TRUE(refused.result.steps.empty());
  fs::remove(folder / "filler");
  run.steps = 20;
  run.saveEvery = 1;
  Resumed warned = resume(samplePlan({.features = 1200}), run);
  EXPECT_THAT(warned.aloud, HasSubstr("warning: 20 checkpoints of"));
}

TEST_F(Disk, ReportsAReadOnlyFolderBeforeTraining) {
  ASSERT_EQ(::mount(nullptr, folder.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, "size=256k"), 0);
  EXPECT_THAT(resume(samplePlan({}), options(1)).error, HasSubstr("cannot hold checkpoints: Read-only file system"));
}

// If metrics cannot be written, the run continues training without them and ends with an error.
TEST_F(Disk, UnwritableMetricsAreAnErrorAtTheEnd) {
  RunOptions run = options(4);
  run.checkpoint.clear();
  run.metrics = folder / "m.jsonl";
  fill(0);
  int trained = 0;
  run.inspect = [&](const Executor &) { ++trained; };
  Resumed full = resume(samplePlan({}), run);
  EXPECT_EQ(trained, 4);
  EXPECT_THAT(full.aloud,
              HasSubstr("m.jsonl: cannot be written: No space left on device; the run continues without it"));
  EXPECT_THAT(full.error, HasSubstr("the metrics are not complete"));
  run.inspect = nullptr;
  fs::remove(folder / "filler");
  run.checkpoint = folder / "c";
  run = withFullDisk(run, [this] { fill(0); }, 2, [this] { fs::remove(folder / "filler"); }, 4);
  // Fills the rest of the page of the metrics file, because short lines would still fit in it.
  run.inspect = [inner = run.inspect, file = run.metrics, count = std::make_shared<int>(0)](const Executor &executor) {
    inner(executor);
    if (++*count == 2)
      fs::resize_file(file, 4096);
  };
  Resumed resumed = resume(samplePlan({}), run);
  EXPECT_THAT(resumed.aloud,
              HasSubstr("m.jsonl: cannot be written: No space left on device; the run continues without it"));
  EXPECT_THAT(resumed.error, HasSubstr("the metrics are not complete"));
  EXPECT_EQ(readManifest(folder / "c" / "step-00000004").state.step, 4); // the trained weights are saved
}

TEST_F(Disk, IsAskedBeforeAnyWork) {
  EXPECT_EQ(writeFault(folder / "x.plan"), "");
  EXPECT_FALSE(fs::exists(folder / "x.plan"));
  EXPECT_TRUE(fs::is_empty(folder)); // the probe is gone
  fill(4096);
  EXPECT_EQ(writeFault(folder / "x.plan"), "No space left on device");
}

} // namespace
} // namespace espalier::rt
