// A resumed run continues bit for bit, and whatever happens while saving, one checkpoint stays
// loadable.
#include "runtime/checkpoint/checkpoint.h"

#include "runtime/checkpoint/safetensors.h"
#include "runtime/status.h"
#include "runtime/train/run.h"
#include "test/runtime/sample_plan.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public testing::Test {
protected:
  Checkpoint() {
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    folder = fs::temp_directory_path() / fmt::format("espalier-{}-{}", info->name(), getpid());
    fs::remove_all(folder);
  }
  ~Checkpoint() override { fs::remove_all(folder); }

  RunResult train(const SampleOptions &options, int64_t steps, bool resume = false, int64_t saveEvery = 0) {
    RunOptions run;
    run.dataset = sampleData(options.features, 40);
    run.steps = steps;
    run.threads = 1;
    run.keepParameters = true;
    run.checkpoint = folder;
    run.resume = resume;
    run.saveEvery = saveEvery;
    return runPlan(Program(samplePlan(options)), run);
  }

  std::string latest() const {
    std::string name;
    std::getline(std::ifstream(folder / "latest"), name);
    return name;
  }

  fs::path folder;
};

TEST_F(Checkpoint, ResumesBitForBit) {
  for (bool zero : {false, true}) {
    SampleOptions options;
    options.dp = options.tp = options.pp = 2;
    options.zero = zero;
    options.dynamicScale = true; // its state must survive as well
    RunResult straight = train(options, 9);
    fs::remove_all(folder);
    train(options, 4);
    RunResult resumed = train(options, 9, /*resume=*/true);
    ASSERT_EQ(resumed.steps.size(), 5u);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(resumed.steps[i].step, 5 + i);
      EXPECT_EQ(resumed.steps[i].loss, straight.steps[4 + i].loss) << i;
      EXPECT_EQ(resumed.steps[i].gradNorm, straight.steps[4 + i].gradNorm) << i;
      EXPECT_EQ(resumed.steps[i].lossScale, straight.steps[4 + i].lossScale) << i;
      EXPECT_EQ(resumed.parameters[i], straight.parameters[4 + i]) << i;
    }
    fs::remove_all(folder);
  }
}

TEST_F(Checkpoint, KeepsEarlierOnesAndPointsAtTheNewest) {
  train({}, 5, /*resume=*/false, /*saveEvery=*/2);
  EXPECT_TRUE(fs::exists(folder / "step-00000002" / "run.json"));
  EXPECT_TRUE(fs::exists(folder / "step-00000004" / "run.json"));
  EXPECT_EQ(latest(), "step-00000005");
}

TEST_F(Checkpoint, AKilledSaveChangesNothing) {
  train({}, 2);
  // What a run leaves that dies while it writes the next one.
  fs::create_directories(folder / ".step-00000003.partial");
  std::ofstream(folder / ".step-00000003.partial" / "rank-00000.safetensors") << "half";
  EXPECT_EQ(train({}, 3, /*resume=*/true).steps.size(), 1u);
  EXPECT_EQ(latest(), "step-00000003");
  EXPECT_FALSE(fs::exists(folder / ".step-00000003.partial"));
}

TEST_F(Checkpoint, ASecondSaveOfAStepKeepsTheFirst) {
  train({}, 2);
  train({}, 2);
  EXPECT_TRUE(fs::exists(folder / "step-00000002"));
  EXPECT_EQ(latest(), "step-00000002-2");
}

TEST_F(Checkpoint, AFolderThatCannotBeMadeIsTheUsersError) {
  fs::create_directories(folder.parent_path());
  std::ofstream(folder) << "a file, not a folder";
  EXPECT_THROW(train({}, 1), PlanError);
}

TEST_F(Checkpoint, AFolderThatCannotBeWrittenStopsTheRun) {
  fs::create_directories(folder / "latest" / "in the way");
  EXPECT_THROW(train({}, 1), RankFailure);
}

TEST_F(Checkpoint, RefusesAnotherSplit) {
  SampleOptions two, four;
  two.tp = 2;
  two.samples = four.samples = 2;
  train(two, 1);
  try {
    train(four, 2, /*resume=*/true);
    FAIL();
  } catch (const RankFailure &error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("another split"));
  }
}

TEST_F(Checkpoint, RefusesDamage) {
  train({}, 1);
  fs::path file = folder / "step-00000001" / "rank-00000.safetensors";
  uint64_t size = fs::file_size(file);
  fs::resize_file(file, size - 8);
  EXPECT_THROW(train({}, 2, /*resume=*/true), RankFailure);
  for (uint64_t length : {~uint64_t(0), uint64_t(1) << 40, uint64_t(3)}) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.write(reinterpret_cast<const char *>(&length), 8);
    stream.close();
    EXPECT_THROW(SafetensorsFile{file}, PlanError) << length;
  }
}

TEST_F(Checkpoint, RefusesToResumeFromNothing) { EXPECT_THROW(train({}, 1, /*resume=*/true), PlanError); }

/// The same reader serves any safetensors file.
TEST_F(Checkpoint, SafetensorsRoundTrip) {
  fs::create_directories(folder);
  std::vector<float> a = {1, 2, 3}, b = {4};
  std::vector<TensorBytes> tensors = {{"a", pb::F32, {3}, std::as_bytes(std::span(a))},
                                      {"b", pb::F32, {1}, std::as_bytes(std::span(b))}};
  writeSafetensors(folder / "x", tensors, {{"key", "value"}});
  SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.metadata().at("key"), "value");
  EXPECT_EQ(reinterpret_cast<const float *>(file.tensor("a", 12).data())[2], 3);
  EXPECT_THROW(file.tensor("a", 8), PlanError);
  EXPECT_THROW(file.tensor("c", 4), PlanError);
}

} // namespace
} // namespace espalier::rt
