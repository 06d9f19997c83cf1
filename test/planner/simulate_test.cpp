// The player against closed forms, and its monotonicity on random tables.
#include "planner/simulate.h"

#include "planner/memory.h"

#include <gtest/gtest.h>

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

// A schedule is put in order once and played with any durations.
TEST(Simulate, KeptSchedulesPlayAsNewOnes) {
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
    for (int stage = 0; stage < 4; ++stage)
      EXPECT_EQ(kept->inFlight()[stage], peakInFlight(table, stage));
  }
}

TEST(Simulate, OneStageHasNoBubble) {
  Played played = play(buildSchedule(Schedule::OneFOneB, 1, 5), {{1, 2, 0}});
  EXPECT_DOUBLE_EQ(played.seconds, 15);
  EXPECT_DOUBLE_EQ(played.busySeconds[0], 15);
}

// Logits are large, so they are counted as often as they are held and no more.
TEST(Simulate, TheHeadIsHeldAsOftenAsIsCounted) {
  for (int microBatches : {4, 8, 12}) {
    ScheduleTable table = buildSchedule(Schedule::Interleaved, 4, microBatches, 3);
    int held = 0, most = 0;
    for (const Action &action : table.stages.back())
      if (action.chunk == 2)
        most = std::max(most, held += action.kind == ActionKind::Forward ? 1 : -1);
    double inFlight = chunksInFlight(Schedule::Interleaved, 3, 4, microBatches, 3);
    EXPECT_EQ(most, microBatches == 4 ? 4 : 1);
    EXPECT_GE(headsInFlight(Schedule::Interleaved, inFlight, 4, microBatches), most);
  }
  EXPECT_EQ(headsInFlight(Schedule::Interleaved, 7, 4, 8), 1);
  EXPECT_EQ(headsInFlight(Schedule::GPipe, 8, 4, 8), 8);
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
