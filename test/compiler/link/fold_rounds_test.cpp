#include "compiler/link/expand_schedule.h"
#include "compiler/link/fold_rounds.h"

#include "gmock/gmock.h"

namespace espalier {
namespace {

using namespace rt::pb;
using planner::Schedule;
using testing::ElementsAre;

/// A stage whose chunks have one call each, and its instruction stream as one block, with lifetimes and slots as in a
/// plan. The first micro-batch overwrites gradients.
struct Emitted {
  Stage stage;
  Actions actions;
};

class ListEmitter {
public:
  ListEmitter(const StageList &list, int microBatches) : list(list) {
    add(out.stage.add_lifetimes(), "resident", 1, /*rotates=*/false);
    add(out.stage.add_lifetimes(), "staged", microBatches, /*rotates=*/true);
    for (const StageLifetime &lifetime : list.lifetimes)
      add(out.stage.add_lifetimes(), "", lifetime.slots, /*rotates=*/true);
    for (size_t chunk = 0; chunk < list.chunks.size(); ++chunk) {
      out.stage.add_calls();
      Chunk &entry = *out.stage.add_chunks();
      entry.set_first_call(chunk);
      entry.set_calls(1);
      if (list.lifetimeOf(chunk, LifetimeKind::Inputs) >= 0)
        entry.add_lifetimes(1);
      for (int lifetime : list.chunks[chunk])
        if (lifetime >= 0)
          entry.add_lifetimes(lifetime + 2);
    }
  }

  Emitted emit() {
    Block &block = *out.actions.add_blocks();
    block.set_rounds(1);
    for (const StageItem &item : list.items) {
      Action &action = *block.add_actions();
      if (item.kind == StageItem::Kind::Run)
        addRun(item.run, *action.mutable_run());
      for (const StageFlight &flight : item.flights)
        if (item.kind == StageItem::Kind::Start)
          setSlots(addFlight(flight, *action.mutable_start()->add_flights()));
        else
          addFlight(flight, *action.mutable_wait()->add_flights());
    }
    return std::move(out);
  }

private:
  static void add(Lifetime *lifetime, const char *name, int slots, bool rotates) {
    lifetime->set_name(name);
    lifetime->set_slots(slots);
    lifetime->set_rotates(rotates);
  }

  void addRun(const planner::Action &run, Run &entry) {
    entry.set_role(static_cast<uint32_t>(run.kind));
    entry.set_first_call(run.chunk);
    entry.set_calls(1);
    entry.set_backwards(run.kind != planner::ActionKind::Forward);
    entry.set_micro_batch(run.microBatch);
    if (run.kind != planner::ActionKind::Forward && run.microBatch == 0)
      entry.add_first(run.chunk);
    for (uint32_t lifetime : out.stage.chunks(run.chunk).lifetimes())
      entry.add_slots(run.microBatch % out.stage.lifetimes(lifetime).slots());
  }

  Flight &addFlight(const StageFlight &flight, Flight &entry) {
    entry.set_transfer(static_cast<uint32_t>(flight.kind));
    entry.set_call(flight.chunk);
    entry.set_micro_batch(flight.microBatch);
    return entry;
  }

  void setSlots(Flight &flight) {
    for (uint32_t lifetime : out.stage.chunks(flight.call()).lifetimes())
      flight.add_slots(flight.micro_batch() % out.stage.lifetimes(lifetime).slots());
  }

  const StageList &list;
  Emitted out;
};

/// Expands the blocks by the rule of README section 2.
Actions unfold(const Stage &stage, const Actions &actions) {
  Actions all;
  Block &list = *all.add_blocks();
  list.set_rounds(1);
  for (const Block &block : actions.blocks())
    for (uint32_t round = 0; round < block.rounds(); ++round)
      for (const Action &action : block.actions()) {
        Action &copy = *list.add_actions() = action;
        uint32_t later = round * block.advance();
        auto advance = [&](uint32_t call, auto &timed) {
          timed.set_micro_batch(timed.micro_batch() + later);
          for (int i = 0; i < timed.slots_size(); ++i)
            if (const Lifetime &lifetime = stage.lifetimes(stage.chunks(call).lifetimes(i)); lifetime.rotates())
              timed.set_slots(i, (timed.slots(i) + later) % lifetime.slots());
        };
        if (copy.has_run())
          advance(copy.run().first_call(), *copy.mutable_run());
        if (copy.has_start())
          for (Flight &flight : *copy.mutable_start()->mutable_flights())
            advance(flight.call(), flight);
        if (copy.has_wait())
          for (Flight &flight : *copy.mutable_wait()->mutable_flights())
            advance(flight.call(), flight);
      }
  return all;
}

size_t actionsOf(const Actions &actions) {
  size_t count = 0;
  for (const Block &block : actions.blocks())
    count += block.actions_size();
  return count;
}

struct Sizes {
  size_t actions = 0, folded = 0, bytes = 0;
};

/// Folds all stages of a schedule, checks that the expanded streams do not change, and counts actions.
Sizes foldSchedule(Schedule schedule, int stages, int microBatches, int chunks) {
  Sizes sizes;
  for (const StageList &list : expandSchedule(planner::buildSchedule(schedule, stages, microBatches, chunks))) {
    Emitted emitted = ListEmitter(list, microBatches).emit();
    Actions folded = emitted.actions;
    foldRounds(emitted.stage, stages, folded);
    EXPECT_EQ(unfold(emitted.stage, folded).SerializeAsString(), emitted.actions.SerializeAsString())
        << planner::scheduleName(schedule) << ", " << stages << " stages, " << microBatches << " micro-batches";
    sizes.actions += actionsOf(emitted.actions);
    sizes.folded += actionsOf(folded);
    sizes.bytes += folded.ByteSizeLong();
  }
  return sizes;
}

// The numbers of README section 2.
TEST(FoldRounds, SizesOfSchedules) {
  Sizes sizes = foldSchedule(Schedule::OneFOneB, 16, 192, 1);
  EXPECT_EQ(sizes.actions, 18269u);
  EXPECT_EQ(sizes.folded, 404u);
  EXPECT_LE(sizes.bytes, 9000u);
  sizes = foldSchedule(Schedule::Interleaved, 16, 192, 6);
  EXPECT_EQ(sizes.actions, 110426u);
  EXPECT_EQ(sizes.folded, 24209u);
  EXPECT_LE(sizes.bytes, 600'000u);
  sizes = foldSchedule(Schedule::ZeroBubbleV, 16, 192, 2);
  EXPECT_EQ(sizes.actions, 42627u);
  EXPECT_EQ(sizes.folded, 8162u);
  EXPECT_LE(sizes.bytes, 200'000u);
}

TEST(FoldRounds, MoreMicroBatchesNeedNoMoreActions) {
  EXPECT_EQ(foldSchedule(Schedule::OneFOneB, 4, 2048, 1).folded, foldSchedule(Schedule::OneFOneB, 4, 192, 1).folded);
  EXPECT_EQ(foldSchedule(Schedule::Interleaved, 4, 2048, 2).folded,
            foldSchedule(Schedule::Interleaved, 4, 256, 2).folded);
}

TEST(FoldRounds, ExpandedStreamsAreUnchanged) {
  for (Schedule schedule : planner::kSchedules)
    for (int stages = 1; stages <= 4; ++stages)
      for (int microBatches = 1; microBatches <= 12; ++microBatches)
        if (int chunks = planner::chunksOf(schedule, 2);
            planner::whyNotSchedulable(schedule, stages, microBatches, chunks).empty())
          foldSchedule(schedule, stages, microBatches, chunks);
}

/// Returns rounds, advance and number of actions of each block.
std::vector<std::vector<uint32_t>> blocksOf(const Actions &actions) {
  std::vector<std::vector<uint32_t>> blocks;
  for (const Block &block : actions.blocks())
    blocks.push_back({block.rounds(), block.advance(), static_cast<uint32_t>(block.actions_size())});
  return blocks;
}

// Stage 1 of README section 5.1: START and F/0, WAIT and B/0 (which lists `first`); the rounds of START, WAIT, F, WAIT,
// B; then the actions that start no new inputs.
TEST(FoldRounds, FirstAndLastMicroBatchAreOutsideOfBlocks) {
  StageList list = expandSchedule(planner::buildSchedule(Schedule::OneFOneB, 2, 6))[1];
  Emitted emitted = ListEmitter(list, 6).emit();
  foldRounds(emitted.stage, 2, emitted.actions);
  EXPECT_THAT(blocksOf(emitted.actions), ElementsAre(ElementsAre(1, 0, 4), ElementsAre(4, 1, 5), ElementsAre(1, 0, 7)));
  EXPECT_EQ(emitted.actions.blocks(0).actions(3).run().first_size(), 1);
}

// Interleaved schedules repeat in groups of as many micro-batches as there are stages.
TEST(FoldRounds, InterleavedRoundsAdvanceByStages) {
  StageList list = expandSchedule(planner::buildSchedule(Schedule::Interleaved, 4, 64, 2))[0];
  Emitted emitted = ListEmitter(list, 64).emit();
  foldRounds(emitted.stage, 4, emitted.actions);
  uint32_t most = 0;
  for (const Block &block : emitted.actions.blocks())
    if (block.rounds() > 1) {
      EXPECT_EQ(block.advance(), 4u);
      most = std::max(most, block.rounds());
    }
  EXPECT_GE(most, 12u);
}

/// Returns RUNs of one call for micro-batches 0, 1, 2, ... in these slots.
Emitted runsInSlots(const std::vector<uint32_t> &slots, bool rotates) {
  Emitted emitted;
  Lifetime &lifetime = *emitted.stage.add_lifetimes();
  lifetime.set_slots(3);
  lifetime.set_rotates(rotates);
  emitted.stage.add_calls();
  Chunk &chunk = *emitted.stage.add_chunks();
  chunk.set_calls(1);
  chunk.add_lifetimes(0);
  Block &block = *emitted.actions.add_blocks();
  block.set_rounds(1);
  for (size_t i = 0; i < slots.size(); ++i) {
    Run &run = *block.add_actions()->mutable_run();
    run.set_calls(1);
    run.set_micro_batch(i);
    run.add_slots(slots[i]);
  }
  return emitted;
}

TEST(FoldRounds, SlotsMustRotateAsTheirLifetimeStates) {
  auto fold = [](Emitted emitted) {
    foldRounds(emitted.stage, 1, emitted.actions);
    return blocksOf(emitted.actions);
  };
  EXPECT_THAT(fold(runsInSlots({1, 2, 0, 1, 2}, /*rotates=*/true)), ElementsAre(ElementsAre(5, 1, 1)));
  EXPECT_THAT(fold(runsInSlots({1, 1, 1, 1, 1}, /*rotates=*/false)), ElementsAre(ElementsAre(5, 1, 1)));
  EXPECT_THAT(fold(runsInSlots({1, 1, 1, 1, 1}, /*rotates=*/true)), ElementsAre(ElementsAre(1, 0, 5)));
  EXPECT_THAT(fold(runsInSlots({0, 1, 2, 0, 1}, /*rotates=*/false)), ElementsAre(ElementsAre(1, 0, 5)));
  EXPECT_THAT(fold(runsInSlots({}, /*rotates=*/true)), testing::IsEmpty());
}

} // namespace
} // namespace espalier
