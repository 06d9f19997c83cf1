// Compares instruction streams with those of runtime/README.md (section 5, without their tails), and checks properties
// of all schedules.
#include "test/compiler/link/play_lists.h"
#include "test/planner/peak_in_flight.h"

#include "gmock/gmock.h"

namespace espalier {
namespace {

using planner::Schedule;

std::string slotsOf(const StageList &list) {
  const char *names[] = {"tok", "act", "fw", "bw", "out", "in", "din", "dout"};
  std::string text;
  for (const StageLifetime &lifetime : list.lifetimes)
    text += (text.empty() ? "" : " ") + std::string(names[static_cast<int>(lifetime.kind)]) +
            std::to_string(lifetime.chunk) + "=" + std::to_string(lifetime.slots);
  return text;
}

TEST(ExpandSchedule, OneFOneB) {
  std::vector<StageList> lists = expandSchedule(planner::buildSchedule(Schedule::OneFOneB, 2, 6));
  EXPECT_EQ(slotsOf(lists[0]), "tok0=3 act0=2 out0=1 dout0=1");
  EXPECT_EQ(printList(lists[0], /*isNumbered=*/false), R"(|  | tok/0 tok/1 tok/2
tok/0 | F/0 | out/0
tok/1 out/0 | F/1 | out/1 dout/0
dout/0 | B/0 | tok/3
tok/2 out/1 | F/2 | out/2 dout/1
dout/1 | B/1 | tok/4
tok/3 out/2 | F/3 | out/3 dout/2
dout/2 | B/2 | tok/5
tok/4 out/3 | F/4 | out/4 dout/3
dout/3 | B/3 |
tok/5 out/4 | F/5 | out/5 dout/4
dout/4 | B/4 | dout/5
dout/5 | B/5 |
out/5 |  |
)");
  EXPECT_EQ(slotsOf(lists[1]), "tok0=2 act0=1 in0=2 din0=1");
  EXPECT_EQ(printList(lists[1], /*isNumbered=*/false), R"(|  | tok/0 tok/1 in/0 in/1
tok/0 in/0 | F/0 |
| B/0 | tok/2 din/0 in/2
tok/1 in/1 | F/1 |
din/0 | B/1 | tok/3 din/1 in/3
tok/2 in/2 | F/2 |
din/1 | B/2 | tok/4 din/2 in/4
tok/3 in/3 | F/3 |
din/2 | B/3 | tok/5 din/3 in/5
tok/4 in/4 | F/4 |
din/3 | B/4 | din/4
tok/5 in/5 | F/5 |
din/4 | B/5 | din/5
din/5 |  |
)");
}

TEST(ExpandSchedule, Interleaved) {
  std::vector<StageList> lists =
      expandSchedule(planner::buildSchedule(Schedule::Interleaved, 2, 4, 2), {.streamsAhead = 0});
  EXPECT_EQ(slotsOf(lists[0]), "tok0=4 act0=4 out0=1 dout0=1 act1=2 out1=1 in1=2 din1=1 dout1=1");
  EXPECT_EQ(printList(lists[0], /*isNumbered=*/true), R"(|  | tok0/0 tok0/1 tok0/2 tok0/3
tok0/0 | F0/0 | out0/0
tok0/1 out0/0 | F0/1 | out0/1 in1/0 in1/1
in1/0 | F1/0 | out1/0
in1/1 out1/0 | F1/1 | out1/1
tok0/2 out0/1 | F0/2 | out0/2 dout1/0
dout1/0 | B1/0 | din1/0
tok0/3 out0/2 | F0/3 | out0/3 dout1/1 in1/2
dout1/1 din1/0 | B1/1 | din1/1 dout0/0
in1/2 out1/1 | F1/2 | out1/2 in1/3
dout0/0 | B0/0 | dout0/1
in1/3 out1/2 | F1/3 | out1/3 dout1/2
dout0/1 | B0/1 |
dout1/2 din1/1 | B1/2 | din1/2 dout1/3 dout0/2
dout1/3 din1/2 | B1/3 | din1/3
dout0/2 | B0/2 | dout0/3
dout0/3 | B0/3 |
out0/3 out1/3 din1/3 |  |
)");
  EXPECT_EQ(slotsOf(lists[1]), "act0=3 out0=1 in0=4 din0=1 dout0=1 tok1=2 act1=1 in1=1 din1=1");
  EXPECT_EQ(printList(lists[1], /*isNumbered=*/true), R"(|  | tok1/0 tok1/1 in0/0 in0/1
in0/0 | F0/0 | out0/0
in0/1 out0/0 | F0/1 | out0/1 in1/0
tok1/0 in1/0 | F1/0 |
| B1/0 | tok1/2 in1/1 in0/2 din1/0 dout0/0 in0/3
tok1/1 in1/1 | F1/1 |
din1/0 | B1/1 | tok1/3 din1/1
in0/2 out0/1 | F0/2 | out0/2
dout0/0 | B0/0 | dout0/1 din0/0 in1/2
in0/3 out0/2 | F0/3 | out0/3
dout0/1 din0/0 | B0/1 | din0/1
tok1/2 in1/2 | F1/2 |
din1/1 | B1/2 | in1/3 din1/2 dout0/2
tok1/3 in1/3 | F1/3 |
din1/2 | B1/3 | din1/3
dout0/2 din0/1 | B0/2 | din0/2 dout0/3
dout0/3 din0/2 | B0/3 | din0/3
out0/3 din1/3 din0/3 |  |
)");
}

TEST(ExpandSchedule, ZeroBubbleV) {
  std::vector<StageList> lists =
      expandSchedule(planner::buildSchedule(Schedule::ZeroBubbleV, 2, 3), {.streamsAhead = 0});
  EXPECT_EQ(slotsOf(lists[0]), "tok0=3 act0=2 fw0=3 bw0=2 out0=1 dout0=1 tok1=3 act1=1 fw1=2 bw1=2 in1=2 din1=1");
  EXPECT_EQ(printList(lists[0], /*isNumbered=*/true), R"(|  | tok0/0 tok0/1 tok0/2 tok1/0 tok1/1 tok1/2
tok0/0 | F0/0 | out0/0
tok0/1 out0/0 | F0/1 | out0/1 in1/0 in1/1
tok1/0 in1/0 | F1/0 |
| B1/0 | din1/0 dout0/0
tok1/1 in1/1 | F1/1 |
din1/0 | B1/1 | din1/1
dout0/0 | B0/0 | dout0/1
| W1/0 |
dout0/1 | B0/1 |
| W1/1 |
tok0/2 out0/1 | F0/2 | out0/2 in1/2
| W0/0 |
| W0/1 |
tok1/2 in1/2 | F1/2 |
din1/1 | B1/2 | din1/2 dout0/2
| W1/2 |
dout0/2 | B0/2 |
| W0/2 |
out0/2 din1/2 |  |
)");
  EXPECT_EQ(slotsOf(lists[1]), "act0=2 fw0=2 bw0=2 in0=2 din0=1 dout0=1 act1=2 fw1=2 bw1=2 out1=1 in1=2 dout1=1");
  EXPECT_EQ(printList(lists[1], /*isNumbered=*/true), R"(|  | in0/0 in0/1
in0/0 | F0/0 |
| F1/0 | out1/0
in0/1 | F0/1 |
out1/0 | F1/1 | out1/1 dout1/0
dout1/0 | B1/0 |
| B0/0 | din0/0 dout1/1
dout1/1 | B1/1 |
din0/0 | B0/1 | din0/1
| W1/0 |
| W1/1 |
| W0/0 | in0/2
in0/2 | F0/2 |
out1/1 | F1/2 | out1/2 dout1/2
| W0/1 |
dout1/2 | B1/2 |
din0/1 | B0/2 | din0/2
| W1/2 |
| W0/2 |
out1/2 din0/2 |  |
)");
}

// At the turning stage of a V schedule, one chunk writes where the next one reads.
TEST(ExpandSchedule, TheTurningStageOfAVSharesLifetimes) {
  StageList list = expandSchedule(planner::buildSchedule(Schedule::ZeroBubbleV, 2, 3))[1];
  EXPECT_EQ(list.lifetimeOf(0, LifetimeKind::Out), list.lifetimeOf(1, LifetimeKind::In));
  EXPECT_EQ(list.lifetimeOf(1, LifetimeKind::DIn), list.lifetimeOf(0, LifetimeKind::DOut));
  EXPECT_GE(list.lifetimeOf(0, LifetimeKind::Out), 0);
  EXPECT_EQ(list.lifetimeOf(1, LifetimeKind::Inputs), -1);
}

TEST(ExpandSchedule, EvaluationIsOneForwardOfEachChunk) {
  planner::ScheduleTable table = planner::buildSchedule(Schedule::Interleaved, 2, 4, 2);
  std::vector<StageList> lists = expandEvaluation(table, {.everyChunkHasInputs = true});
  EXPECT_EQ(printList(lists[0], /*isNumbered=*/true), R"(|  | tok0/0 tok1/0
tok0/0 | F0/0 | out0/0 in1/0
tok1/0 in1/0 | F1/0 | out1/0
out0/0 out1/0 |  |
)");
  EXPECT_EQ(printList(lists[1], /*isNumbered=*/true), R"(|  | tok0/0 tok1/0 in0/0
tok0/0 in0/0 | F0/0 | out0/0 in1/0
tok1/0 in1/0 | F1/0 |
out0/0 |  |
)");
  // Evaluation has the lifetimes of training that forward uses, with one slot each.
  StageList training = expandSchedule(table, {.everyChunkHasInputs = true})[0];
  for (int chunk : {0, 1})
    for (LifetimeKind kind : {LifetimeKind::Inputs, LifetimeKind::Saved, LifetimeKind::Out, LifetimeKind::In,
                              LifetimeKind::DIn, LifetimeKind::DOut}) {
      bool isOfForward = kind == LifetimeKind::Inputs || kind == LifetimeKind::Out || kind == LifetimeKind::In;
      EXPECT_EQ(lists[0].lifetimeOf(chunk, kind) >= 0, isOfForward && training.lifetimeOf(chunk, kind) >= 0);
    }
  for (const StageLifetime &lifetime : lists[0].lifetimes)
    EXPECT_EQ(lifetime.slots, 1);
}

/// Returns all faults of the instruction streams of a schedule, for training and for evaluation.
std::string faultsOf(Schedule schedule, int stages, int microBatches, int chunks, const ListOptions &options) {
  planner::ScheduleTable table = planner::buildSchedule(schedule, stages, microBatches, chunks);
  std::string faults;
  for (bool trains : {true, false}) {
    std::vector<StageList> lists = trains ? expandSchedule(table, options) : expandEvaluation(table, options);
    faults += playInOrderOfIssue(table, lists) + compareLines(table, lists);
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<planner::Action> runs = runsOf(lists[stage]);
      faults += checkBuffers(lists[stage], trains ? microBatches : 1);
      if (trains && runs != table.stages[stage])
        faults += "RUNs differ from the table";
    }
  }
  return faults;
}

TEST(ExpandSchedule, NoScheduleDeadlocksOrReusesALiveBuffer) {
  for (Schedule schedule : planner::kSchedules)
    for (int stages = 1; stages <= 6; ++stages)
      for (int chunks = 1; chunks <= 3; ++chunks)
        for (int microBatches = 1; microBatches <= 20; ++microBatches) {
          if (!planner::whyNotSchedulable(schedule, stages, microBatches, chunks).empty())
            continue;
          for (const ListOptions &options :
               {ListOptions{}, ListOptions{.everyChunkHasInputs = true, .streamsAhead = 0}})
            ASSERT_EQ(faultsOf(schedule, stages, microBatches, chunks, options), "")
                << planner::scheduleName(schedule) << ", " << stages << " stages, " << microBatches
                << " micro-batches, " << chunks << " chunks, " << options.streamsAhead << " streams ahead";
        }
}

/// Returns, per stage, the slots of received streams and cotangents beyond those that RUNs hold.
std::vector<int> slotsToReceive(Schedule schedule, int microBatches, int chunks, int streamsAhead) {
  std::vector<int> slots;
  for (const StageList &list :
       expandSchedule(planner::buildSchedule(schedule, 16, microBatches, chunks), {.streamsAhead = streamsAhead})) {
    for (LifetimeKind kind : {LifetimeKind::Saved, LifetimeKind::SavedForWeights, LifetimeKind::SavedByBackward,
                              LifetimeKind::Out, LifetimeKind::DIn})
      EXPECT_EQ(list.slotsAhead(kind), 0);
    slots.push_back(list.slotsAhead(LifetimeKind::In) + list.slotsAhead(LifetimeKind::DOut));
  }
  return slots;
}

// The numbers of README section 3: only receives that precede a send in the global order need more slots than are in
// flight.
TEST(ExpandSchedule, FewReceivesTakeMoreSlotsThanAreInFlight) {
  using testing::Each;
  using testing::Le;
  std::vector<int> oneFOneB = slotsToReceive(Schedule::OneFOneB, 192, 1, /*streamsAhead=*/0);
  EXPECT_EQ(oneFOneB.front(), 0);
  EXPECT_EQ(oneFOneB.back(), 0);
  EXPECT_THAT(std::vector(oneFOneB.begin() + 1, oneFOneB.end() - 1), Each(1));
  EXPECT_THAT(slotsToReceive(Schedule::ZeroBubbleV, 192, 2, /*streamsAhead=*/0), Each(Le(1)));
  std::vector<int> interleaved = slotsToReceive(Schedule::Interleaved, 192, 6, /*streamsAhead=*/0);
  EXPECT_EQ(interleaved.back(), 11);
  EXPECT_THAT(std::vector(interleaved.begin(), interleaved.end() - 1), Each(Le(4)));
}

// One additional slot per stream is enough for all sends.
TEST(ExpandSchedule, OneStreamAheadIsEnoughForSends) {
  std::vector<int> oneFOneB = slotsToReceive(Schedule::OneFOneB, 192, 1, /*streamsAhead=*/1);
  EXPECT_EQ(oneFOneB.front(), 0);
  EXPECT_THAT(std::vector(oneFOneB.begin() + 1, oneFOneB.end()), testing::Each(1));
}

// Saved values have as many slots as the planner's memory model counts.
TEST(ExpandSchedule, SavedSlotsEqualThePlannersInFlightPeak) {
  for (Schedule schedule : {Schedule::OneFOneB, Schedule::GPipe}) {
    planner::ScheduleTable table = planner::buildSchedule(schedule, 4, 6);
    std::vector<StageList> lists = expandSchedule(table);
    for (int stage = 0; stage < 4; ++stage)
      EXPECT_EQ(lists[stage].lifetimes[lists[stage].lifetimeOf(0, LifetimeKind::Saved)].slots,
                planner::peakInFlight(table, stage));
  }
}

TEST(ExpandSchedule, NoLifetimeHasMoreSlotsThanThereAreMicroBatches) {
  for (const StageList &list : expandSchedule(planner::buildSchedule(Schedule::OneFOneB, 3, 1)))
    for (const StageLifetime &lifetime : list.lifetimes)
      EXPECT_EQ(lifetime.slots, 1);
}

// The checkers of this file find errors that are made on purpose.
TEST(PlayLists, FindsFaults) {
  planner::ScheduleTable table = planner::buildSchedule(Schedule::OneFOneB, 2, 6);
  std::vector<StageList> good = expandSchedule(table), lists = good;
  StageItem &wait = lists[0].items[4], &start = lists[0].items[6];
  ASSERT_THAT(wait.flights,
              testing::ElementsAre(StageFlight{FlightKind::Inputs, 0, 1}, StageFlight{FlightKind::Out, 0, 0}));
  ASSERT_THAT(start.flights,
              testing::ElementsAre(StageFlight{FlightKind::Out, 0, 1}, StageFlight{FlightKind::DOut, 0, 0}));
  ASSERT_EQ(playInOrderOfIssue(table, lists) + compareLines(table, lists) + checkBuffers(lists[0], 6), "");

  std::swap(start.flights[0], start.flights[1]);
  EXPECT_EQ(playInOrderOfIssue(table, lists), "stage 0 hangs at item 7, in dout0/0");
  std::swap(start.flights[0], start.flights[1]);

  wait.flights.pop_back();
  EXPECT_THAT(checkBuffers(lists[0], 6), testing::HasSubstr("lifetime 4 of chunk 0/1 is 3 of 0, wanted 0"));

  lists = good;
  StageLifetime &saved = lists[0].lifetimes[lists[0].lifetimeOf(0, LifetimeKind::Saved)];
  saved.slots = 1;
  EXPECT_THAT(checkBuffers(lists[0], 6), testing::HasSubstr("lifetime 1 of chunk 0/1 is 2 of 0, wanted 0"));
  saved = {.kind = LifetimeKind::Saved, .slots = 3, .inFlight = 3};
  EXPECT_EQ(checkBuffers(lists[0], 6), "lifetime 1 of chunk 0/3, but RUNs hold 2");

  lists = good;
  std::swap(lists[1].items[0].flights[2], lists[1].items[0].flights[3]);
  EXPECT_EQ(compareLines(table, lists), "sends and receives of a line differ");
}

} // namespace
} // namespace espalier
