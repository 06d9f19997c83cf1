// A run that diverges goes back to its last checkpoint, skips the data read since, and goes on.
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/run/run.h"
#include "test/runtime/sample_plan.h"

#include <array>
#include <atomic>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int ranks = 8, saveEvery = 4;

class Rollback : public testing::TestWithParam<SaveMode> {
protected:
  Rollback() {
    folder = fs::temp_directory_path() / fmt::format("espalier-rollback-{}", getpid());
    fs::remove_all(folder);
    model.dp = model.tp = model.pp = 2;
    model.microBatches = 2;
    program.emplace(samplePlan(model));
    batch = static_cast<int64_t>(program->plan().settings().global_batch());
    run.dataset = sampleData(model.features, 64);
    run.steps = 10;
    run.threads = 1;
    run.checkpoint = folder / "c";
    run.metrics = folder / "m.jsonl";
    run.saveEvery = saveEvery;
    run.save = GetParam();
    run.onDivergence = OnDivergence::rollback;
    fs::create_directories(folder);
  }
  ~Rollback() override { fs::remove_all(folder); }

  /// Overwrites the weights with NaN after a step, on all ranks, the first `times` times that the step is trained.
  void ruinAfter(int64_t step, int times) {
    run.inspect = [this, step, times](const Executor &executor) {
      int rank = executor.rankProgram().rank;
      if (executor.step + 1 != step || ruined[rank] == times)
        return;
      ++ruined[rank];
      for (const HeldPiece &held : heldPieces(*program, rank)) {
        DeviceRange place = placeOf(executor, held);
        executor.device().fill(place.offset, 0xff, place.bytes);
      }
    };
  }

  std::string metrics() const {
    std::ifstream stream(run.metrics);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  std::vector<int64_t> trained(const RunResult &result) const {
    std::vector<int64_t> steps;
    for (const StepRecord &step : result.steps)
      steps.push_back(step.step);
    return steps;
  }

  fs::path folder;
  SampleOptions model;
  std::optional<Program> program;
  int64_t batch = 0;
  RunOptions run;
  std::array<int, ranks> ruined{};
};

INSTANTIATE_TEST_SUITE_P(Modes, Rollback, testing::Values(SaveMode::sync, SaveMode::background),
                         [](const auto &info) { return info.param == SaveMode::sync ? "sync" : "background"; });

TEST_P(Rollback, LoadsTheCheckpointAndSkipsTheData) {
  ruinAfter(6, /*times=*/1);
  run.log = true;
  testing::internal::CaptureStdout();
  RunResult result = runPlan(*program, run);
  std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(result.divergence, "");
  EXPECT_EQ(trained(result), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 9, 10}));
  ASSERT_EQ(result.rollbacks.size(), 1u);
  EXPECT_EQ(result.rollbacks[0].afterStep, 7);
  EXPECT_EQ(result.rollbacks[0].toStep, 4);
  EXPECT_EQ(result.rollbacks[0].skippedSamples, 3 * batch);
  EXPECT_EQ(result.rollbacks[0].reason, "the loss of step 7 is not finite");
  std::string sentence =
      fmt::format("rollback 1 of at most 3: the loss of step 7 is not finite; the run goes back to the "
                  "checkpoint of step 4 and skips the {} samples that it has read since\n",
                  3 * batch);
  EXPECT_THAT(output, HasSubstr(sentence));
  EXPECT_THAT(metrics(), HasSubstr(fmt::format("{{\"rolled_back_after_step\":7,\"to_step\":4,\"skipped_samples\":{},"
                                               "\"rollback\":1,\"max_rollbacks\":3,\"reason\":\"the loss of step 7 is "
                                               "not finite\",\"schema\":1}}\n",
                                               3 * batch)));
  for (size_t i = 7; i < result.steps.size(); ++i)
    EXPECT_TRUE(std::isfinite(result.steps[i].loss)) << i;
  EXPECT_NE(result.steps[7].loss, result.steps[4].loss); // other samples
  EXPECT_EQ(result.steps[7].learningRate, result.steps[4].learningRate);
  EXPECT_EQ(readManifest(folder / "c" / "step-00000010").state.consumed, 13 * batch);
}

// The repeated steps are those of a run that begins with the checkpoint and the later samples.
TEST_P(Rollback, RestoresEveryBitOfTheState) {
  ruinAfter(6, /*times=*/1);
  RunResult result = runPlan(*program, run);
  ASSERT_EQ(result.steps.size(), 13u);
  fs::path checkpoint = folder / "c" / "step-00000004";
  Manifest manifest = readManifest(checkpoint);
  manifest.state.consumed = 7 * batch;
  std::ofstream(checkpoint / manifestName, std::ios::binary) << manifestText(manifest);
  for (const char *later : {"latest", "step-00000008", "step-00000010"})
    fs::remove_all(folder / "c" / later);
  RunOptions again = run;
  again.inspect = nullptr;
  again.metrics.clear();
  again.resume = true;
  testing::internal::CaptureStderr();
  RunResult expected = runPlan(*program, again);
  testing::internal::GetCapturedStderr();
  ASSERT_EQ(expected.steps.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(result.steps[7 + i].loss, expected.steps[i].loss) << i;
    EXPECT_EQ(result.steps[7 + i].gradNorm, expected.steps[i].gradNorm) << i;
  }
}

TEST_P(Rollback, EndsTheRunAtTheLimit) {
  ruinAfter(6, /*times=*/100);
  run.maxRollbacks = 2;
  RunResult result = runPlan(*program, run);
  EXPECT_EQ(result.divergence,
            "the loss of step 7 is not finite; no rollback is left of the 2 that --max-rollbacks allows");
  EXPECT_EQ(result.rollbacks.size(), 2u);
  EXPECT_EQ(result.steps.size(), 7u + 3 + 3);
  EXPECT_EQ(latestCheckpoint(folder / "c"), folder / "c" / "step-00000004");
}

TEST_P(Rollback, EndsTheRunWithoutACheckpoint) {
  ruinAfter(2, /*times=*/1);
  RunResult result = runPlan(*program, run);
  EXPECT_EQ(result.divergence, "the loss of step 3 is not finite; no rollback is possible: the run has not written a "
                               "checkpoint yet");
  EXPECT_TRUE(result.rollbacks.empty());
}

TEST_P(Rollback, EndsTheRunIfTheCheckpointIsDamaged) {
  ruinAfter(7, /*times=*/1);
  run.save = SaveMode::sync; // the checkpoint is complete before it is damaged
  run.inspect = [ruin = run.inspect, this](const Executor &executor) {
    ruin(executor);
    if (executor.step + 1 == 8 && executor.rankProgram().rank == 0)
      fs::resize_file(folder / "c" / "step-00000004" / "rank-00000.safetensors", 100);
  };
  RunResult result = runPlan(*program, run);
  EXPECT_THAT(result.divergence, HasSubstr("the loss of step 8 is not finite; no rollback is possible: "));
  EXPECT_THAT(result.divergence, HasSubstr("rank-00000.safetensors: damaged: 100 bytes"));
}

} // namespace
} // namespace espalier::rt
