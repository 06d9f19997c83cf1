// Every table has each action once, in an order that terminates, with the promised micro-batches in flight.
#include "planner/model/schedule.h"
#include "planner/model/simulate.h"
#include "test/planner/peak_in_flight.h"

#include <gtest/gtest.h>
#include <map>
#include <tuple>

using namespace espalier::planner;

namespace {

/// Returns the faults of a table: a missing or repeated action, a backward before its forward, a dependency cycle.
/// Empty when it is valid.
std::vector<std::string> checkSchedule(const ScheduleTable &table, int microBatches) {
  std::vector<std::string> faults;
  int kinds = table.splitsBackward ? 3 : 2;
  for (size_t stage = 0; stage < table.stages.size(); ++stage) {
    std::map<std::tuple<int, int, int>, int> position; // (micro-batch, chunk, kind) -> index
    const std::vector<Action> &actions = table.stages[stage];
    for (size_t i = 0; i < actions.size(); ++i) {
      int kind = static_cast<int>(actions[i].kind);
      std::string name = "stage " + std::to_string(stage) + " action " + std::to_string(i);
      if (!position.emplace(std::tuple(actions[i].microBatch, actions[i].chunk, kind), i).second)
        faults.push_back(name + " is executed twice");
      if (kind > 0 && !position.count({actions[i].microBatch, actions[i].chunk, kind - 1}))
        faults.push_back(name + " runs before what it needs");
    }
    size_t wanted = static_cast<size_t>(microBatches) * table.chunksPerStage * kinds;
    if (position.size() != wanted)
      faults.push_back("stage " + std::to_string(stage) + " has " + std::to_string(position.size()) +
                       " distinct actions, wanted " + std::to_string(wanted));
  }
  if (faults.empty()) {
    size_t chunks = table.stages.size() * table.chunksPerStage;
    if (!play(table, std::vector<ChunkSeconds>(chunks, {1, 1, 1})).finished)
      faults.push_back("stages wait for each other");
  }
  return faults;
}

} // namespace

TEST(Schedule, AllTablesAreValid) {
  for (Schedule schedule : kSchedules)
    for (int stages = 1; stages <= 6; ++stages)
      for (int microBatches = 1; microBatches <= 13; ++microBatches)
        for (int virtualStages = 1; virtualStages <= 3; ++virtualStages) {
          if (!whyNotSchedulable(schedule, stages, microBatches, virtualStages).empty())
            continue;
          ScheduleTable table = buildSchedule(schedule, stages, microBatches, virtualStages);
          EXPECT_EQ(checkSchedule(table, microBatches), std::vector<std::string>{})
              << static_cast<int>(schedule) << " " << stages << " " << microBatches << " " << virtualStages;
        }
}

TEST(Schedule, OneFOneBHoldsNoMoreThanTheStagesBelow) {
  ScheduleTable table = buildSchedule(Schedule::OneFOneB, 4, 8);
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(peakInFlight(table, stage), 4 - stage);
}

TEST(Schedule, GPipeHoldsAllMicroBatches) { EXPECT_EQ(peakInFlight(buildSchedule(Schedule::GPipe, 4, 8), 3), 8); }

TEST(Schedule, ZeroBubbleHoldsNoMoreThanTheFirstStageOf1F1B) {
  ScheduleTable h1 = buildSchedule(Schedule::ZeroBubbleH1, 4, 12);
  ScheduleTable v = buildSchedule(Schedule::ZeroBubbleV, 4, 12);
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(peakInFlight(h1, stage), 4);
    EXPECT_LE(peakInFlight(v, stage), 2 * 4); // chunks of half a stage
  }
}

TEST(Schedule, VHalfAndVMinHoldAHalfAndAThird) {
  // Qi et al. 2024: of 1F1B's p micro-batches, two chunks each, and a constant.
  for (int stages : {4, 6, 8, 12, 16}) {
    ScheduleTable half = buildSchedule(Schedule::VHalf, stages, 4 * stages);
    ScheduleTable least = buildSchedule(Schedule::VMin, stages, 4 * stages);
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_LE(peakInFlight(half, stage), stages + 2) << stages;
      EXPECT_LE(peakInFlight(least, stage), (2 * stages + 2) / 3 + 4) << stages;
    }
  }
}

TEST(Schedule, InterleavedHoldsTheWarmUpAndOne) {
  // Narayanan SC21: stage 0 of p = 4, v = 2 warms up with 2 (p - 1) + (v - 1) p = 10 chunks.
  EXPECT_EQ(peakInFlight(buildSchedule(Schedule::Interleaved, 4, 8, 2), 0), 11);
}

TEST(Schedule, BrokenTablesAreNamed) {
  ScheduleTable table = buildSchedule(Schedule::OneFOneB, 2, 2);
  table.stages[1].pop_back();
  ASSERT_EQ(checkSchedule(table, 2).size(), 1u);
  EXPECT_EQ(checkSchedule(table, 2)[0], "stage 1 has 3 distinct actions, wanted 4");
  table = buildSchedule(Schedule::OneFOneB, 2, 2);
  std::swap(table.stages[0][0], table.stages[0][2]);
  EXPECT_FALSE(checkSchedule(table, 2).empty());
  // Stage 0 needs the gradient of micro-batch 0 first, but stage 1 produces that of 1 first: a cycle with one slot.
  table.stages = {{{ActionKind::Forward, 0, 0},
                   {ActionKind::Backward, 0, 0},
                   {ActionKind::Forward, 1, 0},
                   {ActionKind::Backward, 1, 0}},
                  {{ActionKind::Forward, 0, 0},
                   {ActionKind::Forward, 1, 0},
                   {ActionKind::Backward, 0, 0},
                   {ActionKind::Backward, 1, 0}}};
  EXPECT_EQ(checkSchedule(table, 2), std::vector<std::string>{"stages wait for each other"});
}

TEST(Schedule, RefusalsStateTheWantedValue) {
  EXPECT_EQ(whyNotSchedulable(Schedule::Interleaved, 4, 6, 2),
            "interleaved 1F1B needs micro-batches (6) that divide by the stages (4)");
  EXPECT_NE(whyNotSchedulable(Schedule::OneFOneB, 4, 8, 2), "");
  EXPECT_NE(whyNotSchedulable(Schedule::GPipe, 0, 8, 1), "");
}
