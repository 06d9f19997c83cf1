// Compares the simulator with closed forms, and checks its monotonicity on random tables.
#include "planner/model/simulate.h"

#include "planner/model/memory.h"
#include "test/planner/peak_in_flight.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

using namespace espalier::planner;

namespace {
double seconds(Schedule schedule, int stages, int microBatches, ChunkSeconds each, int virtualStages = 1) {
  ScheduleTable table = buildSchedule(schedule, stages, microBatches, virtualStages);
  return play(table, std::vector<ChunkSeconds>(stages * table.chunksPerStage, each)).seconds;
}
} // namespace

TEST(Simulate, OneFOneBAndGPipeWithEqualStagesAreTheClosedForm) {
  // (m + p - 1) (F + B), with B the whole backward.
  EXPECT_DOUBLE_EQ(seconds(Schedule::OneFOneB, 4, 8, {1, 1.5, 0.5}), 11 * 3.0);
  EXPECT_DOUBLE_EQ(seconds(Schedule::GPipe, 4, 8, {1, 1.5, 0.5}), 11 * 3.0);
}

TEST(Simulate, InterleavingDividesTheBubbleByTheChunks) {
  // m t + (p - 1) t / v (Narayanan SC21): chunks of 1/2 the work.
  EXPECT_DOUBLE_EQ(seconds(Schedule::Interleaved, 4, 8, {0.5, 0.75, 0.25}, 2), 8 * 3.0 + 3 * 3.0 / 2);
}

TEST(Simulate, ZeroBubbleH1HasAThirdOfTheBubble) {
  // Qi 2023: (p - 1) (F + B - W), here 3 * 1 beside 8 * 3 of work.
  EXPECT_DOUBLE_EQ(seconds(Schedule::ZeroBubbleH1, 4, 8, {1, 1, 1}), 8 * 3 + 3.0);
}

TEST(Simulate, ZeroBubbleVHasLessBubbleThanH1) {
  // Chunks of half a stage; with equal F, B and W the published V schedule has (almost) no bubble.
  EXPECT_LT(seconds(Schedule::ZeroBubbleV, 4, 16, {0.5, 0.5, 0.5}), seconds(Schedule::ZeroBubbleH1, 4, 16, {1, 1, 1}));
}

TEST(Simulate, LessMemoryOfTheVCostsBubbleAtItsEndsOnly) {
  for (int stages : {4, 8, 12, 16}) {
    auto bubble = [&](Schedule schedule, int microBatches) {
      double share = schedule == Schedule::OneFOneB ? 1 : 0.5;
      return seconds(schedule, stages, microBatches, {share, share, share}) - 3 * microBatches;
    };
    for (Schedule schedule : {Schedule::VHalf, Schedule::VMin})
      EXPECT_LE(bubble(schedule, 8 * stages), bubble(schedule, 4 * stages)) << stages;
    EXPECT_LE(bubble(Schedule::ZeroBubbleV, 4 * stages), bubble(Schedule::VHalf, 4 * stages));
    EXPECT_LE(bubble(Schedule::VHalf, 4 * stages), bubble(Schedule::VMin, 4 * stages));
    EXPECT_LT(bubble(Schedule::VMin, 4 * stages), bubble(Schedule::OneFOneB, 4 * stages));
  }
}

// A schedule is ordered once and simulated with any durations.
TEST(Simulate, CachedSchedulesEqualNewOnes) {
  ScheduleCache cache;
  for (Schedule schedule : kSchedules) {
    int virtualStages = schedule == Schedule::Interleaved ? 3 : 1;
    auto kept = cache.get(schedule, 4, 8, virtualStages);
    EXPECT_EQ(kept, cache.get(schedule, 4, 8, virtualStages)); // built once
    ScheduleTable table = buildSchedule(schedule, 4, 8, virtualStages);
    for (double weight : {0.5, 2.0}) {
      std::vector<ChunkSeconds> chunks(4 * table.chunksPerStage, {1, 1, weight});
      EXPECT_EQ(kept->play(chunks).seconds, play(table, chunks).seconds) << scheduleName(schedule);
    }
  }
}

// A table that is too long for the cache is not ordered to compute its micro-batches in flight.
TEST(Simulate, LongTablesHaveTheirInFlightPeaks) {
  ScheduleCache cache;
  const int stages = 2, microBatches = 400'000;
  ScheduleTable table = buildSchedule(Schedule::VHalf, stages, microBatches);
  auto held = cache.stagePeaks(Schedule::VHalf, stages, microBatches, 1);
  EXPECT_EQ(held, cache.stagePeaks(Schedule::VHalf, stages, microBatches, 1)); // built once
  for (int stage = 0; stage < stages; ++stage)
    EXPECT_EQ((*held)[stage], stagePeaks(table, stage));
}

TEST(Simulate, OneStageHasNoBubble) {
  Played played = play(buildSchedule(Schedule::OneFOneB, 1, 5), {{1, 2, 0}});
  EXPECT_DOUBLE_EQ(played.seconds, 15);
  EXPECT_DOUBLE_EQ(played.busySeconds[0], 15);
}

// The closed forms and the short interleaved table agree with the whole table.
TEST(Simulate, InFlightPeaksEqualTheTables) {
  std::mt19937 random(5);
  int compared = 0;
  for (int trial = 0; trial < 600; ++trial) {
    Schedule schedule = kSchedules[random() % std::size(kSchedules)];
    int stages = 1 + random() % 6, microBatches = 1 + random() % 30, virtualStages = 1 + random() % 4;
    if (schedule == Schedule::Interleaved)
      microBatches = stages * (1 + random() % 6);
    if (!whyNotSchedulable(schedule, stages, microBatches, virtualStages).empty())
      continue;
    ++compared;
    ScheduleTable table = buildSchedule(schedule, stages, microBatches, virtualStages);
    for (int stage = 0; stage < stages; ++stage) {
      InFlightPeaks held = inFlightPeaks(table, stage);
      StagePeaks peaks = stagePeaks(table, stage);
      EXPECT_EQ(peaks, stagePeaks(schedule, stage, stages, microBatches, virtualStages)) << scheduleName(schedule);
      EXPECT_EQ(held, peaks.moments);
      int most = 0;
      for (const std::vector<int> &moment : held)
        most = std::max(most, std::accumulate(moment.begin(), moment.end(), 0));
      EXPECT_EQ(most, peakInFlight(table, stage));
    }
  }
  EXPECT_GT(compared, 200);
}

// With many chunks there are thousands of equal peaks.
TEST(Simulate, MomentsOfManyChunksHoldTheWarmUpAndOne) {
  const int chunks = 1350;
  InFlightPeaks held = stagePeaks(Schedule::Interleaved, 0, 2, 6, chunks).moments;
  EXPECT_GT(held.size(), 1000u);
  for (const std::vector<int> &moment : held)
    ASSERT_EQ(std::accumulate(moment.begin(), moment.end(), 0), 2 + 2 * (chunks - 1) + 1);
}

// Logits are large, so that the last chunk runs backward right after forward, unless all forwards come first.
TEST(Simulate, TheLastInterleavedChunkIsHeldOnce) {
  for (int microBatches : {4, 8, 12}) {
    int most = 0;
    for (const std::vector<int> &moment : stagePeaks(Schedule::Interleaved, 3, 4, microBatches, 3).moments)
      most = std::max(most, moment.back());
    EXPECT_EQ(most, microBatches == 4 ? 4 : 1);
  }
}

namespace {

// Step time for given durations: the latest stage end, including its work once per step.
double playedStepSeconds(const OrderedSchedule &schedule, const std::vector<ChunkSeconds> &chunks,
                         const std::vector<double> &stepSeconds) {
  Played played = schedule.play(chunks);
  double seconds = 0;
  for (size_t stage = 0; stage < stepSeconds.size(); ++stage)
    seconds = std::max(seconds, played.endSeconds[stage] + stepSeconds[stage]);
  return seconds;
}

} // namespace

// The critical path sums to the step, and to at most the step under any other durations.
TEST(Simulate, TheLongestChainBoundsAllDurations) {
  std::mt19937 random(17);
  std::uniform_real_distribution<double> length(0.1, 2);
  int compared = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    Schedule schedule = kSchedules[random() % std::size(kSchedules)];
    int stages = 1 + random() % 5, microBatches = 1 + random() % 9, virtualStages = 1 + random() % 3;
    if (!whyNotSchedulable(schedule, stages, microBatches, virtualStages).empty())
      continue;
    OrderedSchedule ordered(buildSchedule(schedule, stages, microBatches, virtualStages));
    std::vector<ChunkSeconds> chunks(stages * chunksOf(schedule, virtualStages));
    std::vector<double> steps(stages);
    auto vary = [&] {
      for (ChunkSeconds &chunk : chunks)
        chunk = {length(random), length(random), length(random)};
      for (double &step : steps)
        step = length(random);
    };
    auto sum = [&](const CriticalPath &path) {
      double seconds = steps[path.lastStage];
      for (size_t i = 0; i < chunks.size(); ++i) {
        double backward = chunks[i].backward + (splitsBackward(schedule) ? 0 : chunks[i].weight);
        seconds +=
            path.counts[i][0] * chunks[i].forward + path.counts[i][1] * backward + path.counts[i][2] * chunks[i].weight;
      }
      return seconds;
    };
    vary();
    CriticalPath path = ordered.criticalPath(chunks, steps);
    double seconds = playedStepSeconds(ordered, chunks, steps);
    EXPECT_NEAR(path.seconds, seconds, 1e-12 * seconds);
    EXPECT_NEAR(sum(path), seconds, 1e-9 * seconds);
    vary();
    EXPECT_LE(sum(path), playedStepSeconds(ordered, chunks, steps) * (1 + 1e-12));
    ++compared;
  }
  EXPECT_GT(compared, 500);
}

TEST(Simulate, LongerActionsNeverShortenTheStep) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> length(0.1, 2);
  for (int trial = 0; trial < 2000; ++trial) {
    Schedule schedule = static_cast<Schedule>(random() % 5);
    int stages = 1 + random() % 5, microBatches = 1 + random() % 9, virtualStages = 1 + random() % 3;
    if (!whyNotSchedulable(schedule, stages, microBatches, virtualStages).empty())
      continue;
    ScheduleTable table = buildSchedule(schedule, stages, microBatches, virtualStages);
    std::vector<ChunkSeconds> chunks(stages * table.chunksPerStage);
    for (ChunkSeconds &chunk : chunks)
      chunk = {length(random), length(random), length(random)};
    double before = play(table, chunks).seconds;
    chunks[random() % chunks.size()].forward += length(random);
    EXPECT_GE(play(table, chunks).seconds, before);
  }
}
