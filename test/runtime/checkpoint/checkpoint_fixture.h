// Fixture with a folder of checkpoints, which runs of the toy model write.
#pragma once

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/run/run.h"
#include "runtime/status.h"
#include "test/runtime/sample_plan.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <unistd.h>

namespace espalier::rt {

class CheckpointTest : public testing::Test {
protected:
  using Path = std::filesystem::path;

  CheckpointTest() {
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    // Uses memory if possible, because flushing to a disk is slow.
    Path place = std::filesystem::is_directory("/dev/shm") ? Path("/dev/shm") : std::filesystem::temp_directory_path();
    folder = place / fmt::format("espalier-{}-{}", info->name(), getpid());
    std::filesystem::remove_all(folder);
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder); }

  RunOptions options(int64_t steps, bool resume = false, int64_t saveEvery = 0) const {
    RunOptions run;
    run.dataset = sampleData(12, 40);
    run.steps = steps;
    run.threads = 1;
    run.keepParameters = true;
    run.checkpoint = folder;
    run.resume = resume;
    run.saveEvery = saveEvery;
    run.save = SaveMode::sync; // so that each due checkpoint is there
    return run;
  }

  RunResult train(const SampleOptions &model, int64_t steps, bool resume = false, int64_t saveEvery = 0) const {
    return runPlan(Program(samplePlan(model)), options(steps, resume, saveEvery));
  }

  /// The result of a resumed run, its standard error output, and its error message if it failed.
  struct Resumed {
    RunResult result;
    std::string aloud, error;
  };
  Resumed resume(const pb::Plan &plan, const RunOptions &run) const {
    Resumed resumed;
    testing::internal::CaptureStderr();
    try {
      resumed.result = runPlan(Program(plan), run);
    } catch (const std::runtime_error &error) {
      resumed.error = error.what();
    }
    resumed.aloud = testing::internal::GetCapturedStderr();
    return resumed;
  }
  Resumed resume(int64_t steps) const { return resume(samplePlan({}), options(steps, /*resume=*/true)); }

  std::string latest() const {
    std::string name;
    std::ifstream stream(folder / "latest");
    std::getline(stream, name);
    return name;
  }

  static std::string read(const Path &file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  static void write(const Path &file, const std::string &text) { std::ofstream(file, std::ios::binary) << text; }
  static void flip(const Path &file, size_t byte) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(byte));
    int flipped = stream.get() ^ (1 << byte % 8);
    stream.seekp(static_cast<std::streamoff>(byte));
    stream.put(static_cast<char>(flipped));
  }

  /// Returns all faults of a checkpoint after reading every byte.
  static std::vector<std::string> faults(const Path &checkpoint) {
    try {
      return shardFaults(checkpoint, readManifest(checkpoint), Depth::EveryByte);
    } catch (const PlanError &error) {
      return {error.what()};
    }
  }

  Path folder;
};

} // namespace espalier::rt
