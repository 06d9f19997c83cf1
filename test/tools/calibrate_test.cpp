// Calibration keeps the best of several rounds and reports values that differ between rounds.
#include "tools/machine/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace espalier;

TEST(Calibrate, TheBestRoundCountsAndSpreadsAreNamed) {
  CalibrationRound idle{.fastest = 100,
                        .large = 80,
                        .bf16 = 40,
                        .f16 = 40,
                        .attention = 20,
                        .copy = 16,
                        .link = 8,
                        .launch = 1,
                        .hop = 2};
  CalibrationRound loaded = idle;
  loaded.copy = 6, loaded.hop = 3, loaded.large = 78;
  MeasuredMachine machine;
  keepBest({loaded, idle, loaded}, machine);
  EXPECT_EQ(machine.memoryBytesPerSecond, 16);
  EXPECT_EQ(machine.linkLatencySeconds, 2);
  EXPECT_EQ(machine.matmulEfficiency, 0.8);
  EXPECT_EQ(machine.bf16Flops, 50);
  EXPECT_EQ(describeSpreads(machine), "memory_bandwidth 167 %, link.latency 50 %");
  EXPECT_THAT(clusterYaml("m", machine), testing::HasSubstr("# Not repeatable: over 3 rounds"));
  EXPECT_THAT(clusterYaml("m", machine), testing::Not(testing::HasSubstr("cores:")));
  machine.ranks = 4, machine.cores = 2;
  EXPECT_THAT(clusterYaml("m", machine), testing::HasSubstr("devices_per_host: 4\ncores: 2  # which the ranks share"));
  MeasuredMachine quiet;
  keepBest({idle, idle}, quiet);
  EXPECT_EQ(describeSpreads(quiet), "");
  EXPECT_THAT(clusterYaml("m", quiet), testing::Not(testing::HasSubstr("Not repeatable")));
}
