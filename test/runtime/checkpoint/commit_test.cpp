// Only one run uses a folder at a time, even after a run was killed. Writes never follow a link out of the folder.
#include "runtime/checkpoint/commit.h"

#include "runtime/checkpoint/convert/new_folder.h"
#include "runtime/files/partial_path.h"

#include "test/runtime/checkpoint/checkpoint_fixture.h"

#include <chrono>
#include <csignal>
#include <sys/wait.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Commit : public CheckpointTest {
protected:
  /// Returns the error message if the folder is refused, otherwise an empty string.
  std::string refusal() const {
    try {
      CheckpointFolder held(folder);
      return "";
    } catch (const PlanError &error) {
      return error.what();
    }
  }
};

TEST_F(Commit, OneRunHoldsTheFolder) {
  {
    CheckpointFolder held(folder);
    EXPECT_THAT(refusal(), HasSubstr(fmt::format("another run (process {}) writes checkpoints there", getpid())));
    EXPECT_THROW(train({}, 1), PlanError);
  }
  EXPECT_EQ(refusal(), "");
}

// The lock ends with the process that holds it, even if a signal kills the process.
TEST_F(Commit, AKilledRunReleasesTheLock) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    CheckpointFolder held(folder);
    held.begin(7);
    if (::write(ends[1], "x", 1) != 1)
      _exit(1);
    pause();
    _exit(0);
  }
  char taken = 0;
  ASSERT_EQ(::read(ends[0], &taken, 1), 1);
  EXPECT_THAT(refusal(), HasSubstr(fmt::format("another run (process {})", child)));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(refusal(), "");
  // The next run removed the partial checkpoint.
  for (const auto &entry : fs::directory_iterator(folder))
    EXPECT_EQ(entry.path().filename(), ".lock");
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Commit, RemovesPartialFilesOfKilledRuns) {
  train({}, 2);
  fs::create_directories(folder / ".step-00000003.17-0000abcd.partial");
  write(folder / ".step-00000003.17-0000abcd.partial" / "rank-00000.safetensors", "half");
  write(folder / ".latest.17.part", "step-");
  write(folder / "notes.txt", "mine");
  EXPECT_EQ(train({}, 3, /*resume=*/true).steps.size(), 1u);
  EXPECT_EQ(latest(), "step-00000003");
  EXPECT_FALSE(fs::exists(folder / ".step-00000003.17-0000abcd.partial"));
  EXPECT_FALSE(fs::exists(folder / ".latest.17.part"));
  EXPECT_EQ(read(folder / "notes.txt"), "mine");
}

TEST_F(Commit, PartialNamesAreUnique) {
  fs::path first;
  {
    CheckpointFolder held(folder);
    first = held.partial(3);
    EXPECT_EQ(held.partial(3), first);
    EXPECT_NE(held.partial(4), first);
  }
  EXPECT_NE(CheckpointFolder(folder).partial(3), first);
}

// A run replaces links that have the name of a file that the run writes. The targets of the links do not change.
TEST_F(Commit, FollowsNoLink) {
  fs::create_directories(folder);
  fs::path target = folder / "precious";
  write(target, "precious");
  for (const std::string &name :
       {std::string("latest"), std::string(".latest.partial"), fmt::format(".latest.{}.part", getpid())})
    fs::create_symlink(target, folder / name);
  train({}, 1);
  EXPECT_EQ(read(target), "precious");
  EXPECT_EQ(latest(), "step-00000001");
  EXPECT_FALSE(fs::is_symlink(folder / "latest"));
  fs::remove(folder / ".lock");
  fs::create_symlink(target, folder / ".lock");
  EXPECT_THAT(refusal(), HasSubstr("cannot hold checkpoints"));
  EXPECT_EQ(read(target), "precious");
}

/// A checkpoint that `latest` cannot name is complete and resumes, which the error says.
TEST_F(Commit, ALatestThatCannotBeRenamed) {
  fs::create_directories(folder / fmt::format(".latest.{}.part", getpid()) / "in the way");
  std::string fault;
  {
    CheckpointFolder held(folder);
    fs::create_directories(folder / fmt::format(".latest.{}.part", getpid()) / "in the way");
    held.begin(2);
    try {
      held.commit(2, "{}");
    } catch (const LatestFault &error) {
      fault = error.what();
      EXPECT_EQ(error.name, "step-00000002");
    }
  }
  std::string complete = (folder / "step-00000002").string();
  EXPECT_THAT(fault, HasSubstr(fmt::format("{} is complete, and --resume continues from {}", complete, complete)));
}

/// A folder that was moved away under the run belongs to somebody else.
TEST_F(Commit, AReplacedFolderIsNoticed) {
  CheckpointFolder held(folder);
  held.begin(1);
  fs::rename(folder, folder.string() + ".away");
  CheckpointFolder other(folder); // nothing keeps another run from it
  auto fault = [&](auto &&work) {
    try {
      work();
    } catch (const PlanError &error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(fault([&] { held.begin(2); }), HasSubstr("is not the folder that this run has locked"));
  EXPECT_THAT(fault([&] { held.commit(1, "{}"); }), HasSubstr("another run may write there"));
  other.begin(2);
  fs::remove_all(folder.string() + ".away");
}

/// A new folder of `convert` removes what killed processes have left beside it, but nothing that another machine, which
/// holds it, may be writing.
TEST_F(Commit, ANewFolderSweepsLeftovers) {
  pid_t dead = fork();
  if (dead == 0)
    _exit(0);
  ASSERT_EQ(waitpid(dead, nullptr, 0), dead);
  fs::path left = folder / fmt::format(".out.{}.part", dead), held = folder / fmt::format(".out.{}.part", dead + 1);
  for (const char *name : {".out.x.part", ".other.1.part"})
    fs::create_directories(folder / name);
  fs::create_directories(left / "inside");
  fs::create_directories(held);
  int hold = holdPartial(held);
  NewFolder made(folder / "out");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(held));
  EXPECT_TRUE(fs::exists(folder / ".out.x.part") && fs::exists(folder / ".other.1.part"));
  EXPECT_TRUE(fs::exists(made.path()));
  close(hold);
}

TEST_F(Commit, AnUnusableFolderIsAUserError) {
  write(folder, "a file, not a folder");
  EXPECT_THAT(refusal(), HasSubstr("cannot hold checkpoints: Not a directory"));
  fs::remove(folder);
  fs::create_directories(folder / "latest" / "in the way");
  EXPECT_THAT(refusal(), HasSubstr("'latest' is no file"));
}

TEST_F(Commit, KeepsTheNewest) {
  RunOptions run = options(6, /*resume=*/false, /*saveEvery=*/1);
  run.keep = 2;
  Resumed resumed = resume(samplePlan({}), run);
  EXPECT_THAT(resumed.aloud, HasSubstr("the newest 2 checkpoints are kept"));
  EXPECT_EQ(checkpointNames(folder), (std::vector<std::string>{"step-00000006", "step-00000005"}));
  EXPECT_THAT(resumed.aloud, testing::Not(HasSubstr("another run")));
}

// A run without --resume keeps the checkpoints of an earlier run in the folder and reports them.
TEST_F(Commit, ANewRunKeepsExistingCheckpoints) {
  train({}, 6, /*resume=*/false, /*saveEvery=*/3);
  RunOptions run = options(4, /*resume=*/false, /*saveEvery=*/1);
  run.keep = 1;
  EXPECT_THAT(resume(samplePlan({}), run).aloud,
              HasSubstr("holds checkpoints of another run, the newest is step-00000006; they stay"));
  EXPECT_EQ(checkpointNames(folder), (std::vector<std::string>{"step-00000004", "step-00000006", "step-00000003"}));
  EXPECT_TRUE(faults(folder / latest()).empty());
}

// Copying a checkpoint changes its file times. The sequence numbers in the manifests therefore give the order.
TEST_F(Commit, CopyingPreservesTheOrder) {
  train({}, 3, /*resume=*/false, /*saveEvery=*/1);
  runPlan(Program(samplePlan({})), options(1)); // a run from the start is newer than the others
  std::vector<std::string> order = {"step-00000001-2", "step-00000003", "step-00000002", "step-00000001"};
  EXPECT_EQ(checkpointNames(folder), order);
  fs::file_time_type time = fs::file_time_type::clock::now();
  for (const std::string &name : order) // gives the newest checkpoint the oldest file time
    fs::last_write_time(folder / name / "manifest.json", time += std::chrono::seconds(1));
  fs::remove(folder / "latest");
  EXPECT_EQ(checkpointNames(folder), order);
  EXPECT_EQ(CheckpointFolder(folder).nextSequence(), 5u);
}

// Checkpoints of older programs have no sequence number. File times order them, and all numbered checkpoints are newer.
TEST_F(Commit, FileTimesOrderOldCheckpoints) {
  train({}, 3, /*resume=*/false, /*saveEvery=*/1);
  fs::remove(folder / "latest");
  fs::file_time_type time = fs::file_time_type::clock::now();
  for (int step : {3, 2}) {
    Path manifest = folder / fmt::format("step-{:08}", step) / "manifest.json";
    std::string text = read(manifest), line = fmt::format(" \"sequence\": {},\n", step);
    ASSERT_NE(text.find(line), std::string::npos);
    write(manifest, text.replace(text.find(line), line.size(), ""));
    fs::last_write_time(manifest, time += std::chrono::seconds(1));
  }
  EXPECT_EQ(checkpointNames(folder), (std::vector<std::string>{"step-00000001", "step-00000002", "step-00000003"}));
}

TEST_F(Commit, KeepsAllCheckpointsByDefaultWithANote) {
  EXPECT_THAT(resume(samplePlan({}), options(4, /*resume=*/false, /*saveEvery=*/1)).aloud,
              HasSubstr("all checkpoints are kept; --keep N keeps the newest N"));
  EXPECT_EQ(checkpointNames(folder).size(), 4u);
}

// A damaged checkpoint does not count as one of the kept checkpoints, and it is not deleted.
TEST_F(Commit, DamagedCheckpointsDoNotCountAndStay) {
  train({}, 4, /*resume=*/false, /*saveEvery=*/2);
  flip(folder / "step-00000004" / "manifest.json", 200);
  RunOptions run = options(5, /*resume=*/true);
  run.keep = 2;
  resume(samplePlan({}), run);
  EXPECT_TRUE(fs::exists(folder / "step-00000005"));
  EXPECT_TRUE(fs::exists(folder / "step-00000004"));
  EXPECT_TRUE(fs::exists(folder / "step-00000002"));
}

TEST_F(Commit, FindsTheCheckpointOfAFolderOrAStep) {
  train({}, 2);
  EXPECT_EQ(checkpointAt(folder), folder / "step-00000002");
  EXPECT_EQ(checkpointAt(folder / "step-00000002"), folder / "step-00000002");
  EXPECT_EQ(latestCheckpoint(folder), (folder / "step-00000002").string());
  EXPECT_EQ(latestCheckpoint(folder / "none"), "");
  EXPECT_THROW(checkpointAt(folder / "none"), PlanError);
}

} // namespace
} // namespace espalier::rt
