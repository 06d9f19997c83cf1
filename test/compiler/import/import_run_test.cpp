// Whole run files: ours, and MindFormers' as they are shipped.
#include "compiler/import/explain.h"
#include "compiler/import/import_run.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string config(const std::string &name) {
  return std::string(ESPALIER_SOURCE_DIR "/configs/") + name + ".yaml";
}

fs::path shared() {
  const char *folder = std::getenv("ESPALIER_SHARED");
  return folder ? folder : ESPALIER_SOURCE_DIR "/../shared";
}

TEST(ImportRun, TinyGptIsPinnedOnEightRanks) {
  ImportedRun run = importRun(config("tiny_gpt"));
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  const RunConfig &c = run.config;
  EXPECT_EQ(c.cluster.devices(), 8);
  EXPECT_TRUE(c.pins.pinned);
  EXPECT_EQ(c.pins.dp, 2);
  EXPECT_EQ(c.pins.tp, 2);
  EXPECT_EQ(c.pins.pp, 2);
  EXPECT_GE(*c.pins.microBatches, 2);
  EXPECT_EQ(c.globalBatch, *c.pins.microBatches * *c.pins.microBatchSize * 2);
  EXPECT_EQ(c.model.dims.at("vocab"), 256);
  EXPECT_EQ(c.model.dims.at("head_dim"), 16);
  EXPECT_EQ(c.model.layerCount(), 4);
  EXPECT_DOUBLE_EQ(c.optimizer.epsilon, 1e-8);
  EXPECT_DOUBLE_EQ(c.schedule.peak, 1e-3);
}

} // namespace
} // namespace espalier
