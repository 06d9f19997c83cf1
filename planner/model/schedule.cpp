// Builds schedule tables from closed forms, and computes the micro-batches in flight under them.
#include "planner/model/schedule.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>

namespace espalier::planner {

const char *scheduleName(Schedule schedule) {
  static constexpr const char *names[] = {"gpipe",         "1f1b",   "interleaved", "zero_bubble_h1",
                                          "zero_bubble_v", "v_half", "v_min"};
  return names[static_cast<int>(schedule)];
}

std::optional<Schedule> scheduleNamed(std::string_view name) {
  for (Schedule schedule : kSchedules)
    if (name == scheduleName(schedule))
      return schedule;
  return std::nullopt;
}

bool isVShaped(Schedule schedule) {
  return schedule == Schedule::ZeroBubbleV || schedule == Schedule::VHalf || schedule == Schedule::VMin;
}

int Placement::stageOf(int modelChunk) const {
  if (returns)
    return modelChunk < stageCount ? modelChunk : 2 * stageCount - 1 - modelChunk;
  return modelChunk % stageCount;
}

int Placement::modelChunk(int stage, int chunk) const {
  if (returns)
    return chunk == 0 ? stage : 2 * stageCount - 1 - stage;
  return chunk * stageCount + stage;
}

Placement placement(Schedule schedule, int stages, int virtualStages) {
  return {stages, chunksOf(schedule, virtualStages), isVShaped(schedule)};
}

Placement placement(const ParallelConfig &config) {
  return placement(config.schedule, config.pp, config.virtualStages);
}

int chunksOf(Schedule schedule, int virtualStages) {
  if (schedule == Schedule::Interleaved)
    return virtualStages;
  return isVShaped(schedule) ? 2 : 1;
}

bool splitsBackward(Schedule schedule) { return schedule == Schedule::ZeroBubbleH1 || isVShaped(schedule); }

std::string whyNotSchedulable(Schedule schedule, int stages, int microBatches, int virtualStages) {
  if (stages < 1 || microBatches < 1)
    return "a schedule needs at least one stage and one micro-batch";
  if (schedule == Schedule::Interleaved) {
    if (stages < 2)
      return "interleaved 1F1B needs at least 2 stages";
    if (virtualStages < 2)
      return "interleaved 1F1B needs at least 2 virtual stages";
    if (microBatches % stages != 0)
      return "interleaved 1F1B needs micro-batches (" + std::to_string(microBatches) + ") that divide by the stages (" +
             std::to_string(stages) + ")";
    return "";
  }
  if (isVShaped(schedule) && virtualStages != 2 && virtualStages != 1)
    return std::string(scheduleName(schedule)) + " has exactly 2 virtual stages";
  if (!isVShaped(schedule) && virtualStages != 1)
    return "virtual stages need the interleaved or a V-shaped schedule";
  return "";
}

namespace {

// Returns the k-th forward of a stage. Micro-batches come in groups of `stages`; each group runs through all chunks.
Action forwardAt(int k, int stages, int chunks) {
  if (chunks == 1) // without divisions: a search lists millions of actions
    return {ActionKind::Forward, k, 0};
  int group = k / (stages * chunks), inGroup = k % (stages * chunks);
  return {ActionKind::Forward, group * stages + inGroup % stages, inGroup / stages};
}

// Returns the number of forwards of a stage before its first backward.
int warmUp(Schedule schedule, int stage, int stages, int microBatches, int chunks) {
  int total = microBatches * chunks;
  if (schedule == Schedule::GPipe || (schedule == Schedule::Interleaved && microBatches == stages))
    return total;
  int ahead = stages - stage - 1;
  return std::min(total, schedule == Schedule::Interleaved ? 2 * ahead + (chunks - 1) * stages : ahead);
}

// Runs forwards and backwards in turn after the warm-up. With weight gradients of their own (zero bubble H1), that of
// micro-batch i waits for `stage` more backwards. Every stage then holds as much as the first one, and upstream stages
// get their gradients earlier.
std::vector<Action> stageActions(Schedule schedule, int stage, int stages, int microBatches, int virtualStages) {
  int chunks = chunksOf(schedule, virtualStages), total = microBatches * chunks;
  int warmup = warmUp(schedule, stage, stages, microBatches, chunks);
  std::vector<Action> actions;
  for (int k = 0; k < warmup; ++k)
    actions.push_back(forwardAt(k, stages, chunks));
  for (int k = 0; k < total; ++k) {
    if (warmup + k < total)
      actions.push_back(forwardAt(warmup + k, stages, chunks));
    Action forward = forwardAt(k, stages, chunks);
    actions.push_back({ActionKind::Backward, forward.microBatch, chunks - 1 - forward.chunk});
    if (splitsBackward(schedule) && k >= stage)
      actions.push_back({ActionKind::Weight, k - stage, 0});
  }
  for (int i = std::max(0, microBatches - stage); splitsBackward(schedule) && i < microBatches; ++i)
    actions.push_back({ActionKind::Weight, i, 0});
  return actions;
}

} // namespace

ScheduleTable buildSchedule(Schedule schedule, int stages, int microBatches, int virtualStages) {
  assert(whyNotSchedulable(schedule, stages, microBatches, virtualStages).empty());
  ScheduleTable table = {placement(schedule, stages, virtualStages), {}, splitsBackward(schedule)};
  if (table.returns)
    table.stages = buildVStages(schedule, stages, microBatches);
  else
    for (int stage = 0; stage < stages; ++stage)
      table.stages.push_back(stageActions(schedule, stage, stages, microBatches, virtualStages));
  return table;
}

InFlightPeaks inFlightPeaks(const ScheduleTable &table, int stage) {
  ActionKind release = table.splitsBackward ? ActionKind::Weight : ActionKind::Backward;
  std::vector<int> held(table.chunksPerStage);
  InFlightPeaks moments; // in time order; only the ends of straight lines
  std::vector<int> step, lastStep;
  bool isGrowing = false;
  for (const Action &action : table.stages[stage])
    if (action.kind == ActionKind::Forward) {
      ++held[action.chunk];
      isGrowing = true;
    } else if (action.kind == release) {
      if (isGrowing && !moments.empty()) {
        step.resize(held.size());
        std::ranges::transform(held, moments.back(), step.begin(), std::minus<>());
        if (step == lastStep)
          moments.pop_back();
        std::swap(step, lastStep);
      }
      if (isGrowing)
        moments.push_back(held);
      isGrowing = false;
      --held[action.chunk];
    }
  std::ranges::sort(moments);
  moments.erase(std::ranges::unique(moments).begin(), moments.end());
  // A moment that dominates another one has a larger total. With many chunks nearly all totals are equal, so that few
  // pairs need a comparison per chunk.
  std::vector<int> totals;
  for (const std::vector<int> &moment : moments)
    totals.push_back(std::accumulate(moment.begin(), moment.end(), 0));
  InFlightPeaks most;
  for (size_t i = 0; i < moments.size(); ++i) {
    bool isCovered = false;
    for (size_t other = 0; other < moments.size() && !isCovered; ++other)
      isCovered = totals[other] > totals[i] && std::ranges::equal(moments[i], moments[other], std::less_equal<>());
    if (!isCovered)
      most.push_back(moments[i]);
  }
  return most;
}

namespace {

// Counts micro-batches between two actions of a chunk.
struct LiveCount {
  int now = 0, peak = 0;
  void begin() { peak = std::max(peak, ++now); }
  void end() { --now; }
};

struct ChunkCounts {
  LiveCount untilBackward, untilWeight, fromBackward, received, gradients;
};

} // namespace

StagePeaks stagePeaks(const ScheduleTable &table, int stage) {
  int chunks = table.chunksPerStage;
  std::vector<ChunkCounts> counts(chunks);
  auto isTurn = [&](int chunk) { // this stage also runs the next chunk of the model
    return table.returns && chunk >= 0 && chunk + 1 < chunks &&
           table.modelChunk(stage, chunk + 1) == table.modelChunk(stage, chunk) + 1;
  };
  for (const Action &action : table.stages[stage]) {
    ChunkCounts &own = counts[action.chunk];
    bool startsTurn = isTurn(action.chunk), endsTurn = isTurn(action.chunk - 1);
    switch (action.kind) {
    case ActionKind::Forward:
      own.untilBackward.begin();
      own.untilWeight.begin();
      if (!endsTurn)
        own.received.begin();
      if (startsTurn)
        counts[action.chunk + 1].received.begin();
      break;
    case ActionKind::Backward:
      if (table.splitsBackward)
        own.fromBackward.begin();
      if (!startsTurn)
        own.gradients.begin();
      if (endsTurn)
        counts[action.chunk - 1].gradients.begin();
      own.gradients.end();
      own.untilBackward.end();
      if (!table.splitsBackward) {
        own.untilWeight.end();
        own.received.end();
      }
      break;
    case ActionKind::Weight:
      own.untilWeight.end();
      own.received.end();
      own.fromBackward.end();
      break;
    }
  }
  StagePeaks peaks{inFlightPeaks(table, stage), {}};
  for (const ChunkCounts &chunk : counts)
    peaks.chunks.push_back({chunk.untilBackward.peak, chunk.untilWeight.peak, chunk.fromBackward.peak,
                            chunk.received.peak, chunk.gradients.peak});
  return peaks;
}

StagePeaks stagePeaks(Schedule schedule, int stage, int stages, int microBatches, int virtualStages) {
  auto oneChunk = [](int untilBackward, int untilWeight, int fromBackward) {
    return StagePeaks{{{untilWeight}}, {{untilBackward, untilWeight, fromBackward, untilWeight, 1}}};
  };
  int first = std::min(microBatches, stages - stage);
  switch (schedule) {
  case Schedule::GPipe:
    return oneChunk(microBatches, microBatches, 0);
  case Schedule::OneFOneB:
    return oneChunk(first, first, 0);
  case Schedule::ZeroBubbleH1:
    return oneChunk(first, std::min(microBatches, stages), std::min(microBatches, stage + 1));
  case Schedule::Interleaved:
    microBatches = std::min(microBatches, kRepeatedBatches * stages);
    return stagePeaks(ScheduleTable{placement(schedule, /*stages=*/1, virtualStages),
                                    {stageActions(schedule, stage, stages, microBatches, virtualStages)},
                                    /*splitsBackward=*/false},
                      0);
  default:
    break;
  }
  return stagePeaks(buildSchedule(schedule, stages, microBatches, virtualStages), stage);
}

} // namespace espalier::planner
