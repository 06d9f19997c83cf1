// The chains against the player: never longer than what is played, and as long where the longest path turns once.
#include "planner/search/longest_paths.h"
#include "planner/search/split_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace espalier::planner;

namespace {

constexpr Schedule kOneChunk[] = {Schedule::GPipe, Schedule::OneFOneB, Schedule::ZeroBubbleH1};

// Lower bound of a step: the longest chain through any stage, from the first forward to the last end.
double longestChain(Schedule schedule, const std::vector<ChunkSeconds> &chunks, const std::vector<double> &stepSeconds,
                    int64_t microBatches) {
  LongestPaths paths(schedule, static_cast<int>(chunks.size()), microBatches);
  double below = 0, bound = 0, above = 0;
  for (const ChunkSeconds &chunk : chunks)
    below += paths.passing(chunk);
  double forwards = 0; // down to the stage
  for (size_t stage = 0; stage < chunks.size(); ++stage) {
    const ChunkSeconds &chunk = chunks[stage];
    below -= paths.passing(chunk);
    int s = static_cast<int>(stage);
    above = std::max(above, forwards + paths.ending(s, chunk, stepSeconds[stage]));
    bound = std::max(bound, above + paths.turning(s, chunk, below));
    above += paths.passing(chunk);
    forwards += chunk.forward;
  }
  return bound;
}

double played(Schedule schedule, const std::vector<ChunkSeconds> &chunks, const std::vector<double> &steps, int m) {
  return playedStepSeconds(OrderedSchedule(buildSchedule(schedule, static_cast<int>(chunks.size()), m)), chunks, steps);
}

} // namespace

TEST(LongestPaths, NeverExceedWhatIsPlayed) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> length(0.1, 1);
  for (Schedule schedule : kOneChunk)
    for (int stages = 1; stages <= 9; ++stages)
      for (int microBatches = 1; microBatches <= 20; ++microBatches)
        for (int trial = 0; trial < 12; ++trial) {
          std::vector<ChunkSeconds> chunks(stages);
          std::vector<double> steps(stages);
          for (ChunkSeconds &chunk : chunks) {
            double layers = trial % 3 ? 1 : length(random); // all alike, by layers, or with no order at all
            chunk = {layers, 2 * layers, trial % 2 ? layers : length(random)};
          }
          for (double &step : steps)
            step = trial % 4 * length(random);
          EXPECT_LE(longestChain(schedule, chunks, steps, microBatches),
                    played(schedule, chunks, steps, microBatches) * (1 + 1e-12))
              << scheduleName(schedule) << " stages " << stages << " micro-batches " << microBatches;
        }
}

// Stage 1 is the slowest: down to the last stage and back, all that stage 1 does, and down and up again.
TEST(LongestPaths, FewMicroBatchesPassStagesTwice) {
  std::vector<ChunkSeconds> chunks = {{1, 2, 0}, {1.5, 3, 0}, {1, 2, 0}, {1, 2, 0}};
  std::vector<double> steps(4, 0);
  double through = 3 * 3 + 4.5, twice = 4.5 + 6; // of all stages; of those from stage 1 on
  EXPECT_DOUBLE_EQ(longestChain(Schedule::OneFOneB, chunks, steps, 5), through + twice + 4.5);
  EXPECT_DOUBLE_EQ(played(Schedule::OneFOneB, chunks, steps, 5), through + twice + 4.5);
}

// The last stage has the most to do once per step; the first ends later, but has nothing left.
TEST(LongestPaths, AnyStageMayEndLast) {
  std::vector<ChunkSeconds> chunks(3, {1, 2, 1});
  std::vector<double> steps = {0, 0, 100};
  for (Schedule schedule : kOneChunk) {
    double busy = 4 * 6, before = 2; // the last stage is never idle, but for the first forwards down to it
    EXPECT_DOUBLE_EQ(longestChain(schedule, chunks, steps, 6), before + busy + 100) << scheduleName(schedule);
    EXPECT_DOUBLE_EQ(played(schedule, chunks, steps, 6), before + busy + 100) << scheduleName(schedule);
  }
}

// A layer that moves from below to a stage never makes its chain shorter: ranges are cut by that.
TEST(LongestPaths, GrowWithTheLayersOfTheStage) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> length(0, 1);
  for (int trial = 0; trial < 20000; ++trial) {
    int stages = 1 + static_cast<int>(random() % 8), stage = static_cast<int>(random() % stages);
    LongestPaths paths(kOneChunk[random() % 3], stages, 1 + static_cast<int>(random() % 16));
    ChunkSeconds layer = {length(random), length(random), length(random)},
                 with = {layer.forward, layer.backward, layer.weight};
    ChunkSeconds chunk = {length(random), length(random), length(random)};
    with.forward += chunk.forward, with.backward += chunk.backward, with.weight += chunk.weight;
    double below = stage + 1 < stages ? length(random) + paths.passing(layer) : 0;
    double belowWith = stage + 1 < stages ? below - paths.passing(layer) : 0;
    EXPECT_LE(paths.turning(stage, chunk, below), paths.turning(stage, with, belowWith) + 1e-12);
  }
}
