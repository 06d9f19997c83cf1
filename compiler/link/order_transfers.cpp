#include "compiler/link/order_transfers.h"

#include "planner/model/simulate.h"

#include <algorithm>
#include <cassert>

namespace espalier {

namespace {

/// A value that a chunk makes for the previous or the next chunk.
struct MadeValue {
  int end = 0;   ///< end time of the RUN that makes the value, in units of one RUN
  int chunk = 0; ///< chunk that makes the value, in model order
  bool isBackward = false;
  int microBatch = 0;
};

std::vector<MadeValue> madeValues(const planner::ScheduleTable &table) {
  int stages = static_cast<int>(table.stages.size());
  planner::ChunkSeconds unit = {.forward = 1, .backward = 1, .weight = table.splitsBackward ? 1.0 : 0.0};
  planner::Played played =
      planner::play(table, std::vector<planner::ChunkSeconds>(static_cast<size_t>(stages) * table.chunksPerStage, unit),
                    /*wantTrace=*/true);
  assert(played.finished);
  std::vector<MadeValue> values;
  for (int stage = 0; stage < stages; ++stage)
    for (const planner::PlayedAction &step : played.trace[stage])
      if (step.action.kind != planner::ActionKind::Weight)
        values.push_back({static_cast<int>(step.endSeconds), table.modelChunk(stage, step.action.chunk),
                          step.action.kind == planner::ActionKind::Backward, step.action.microBatch});
  // A chunk makes one value at a time, so no two keys are equal.
  std::ranges::sort(values, {}, [](const MadeValue &value) { return std::pair(value.end, value.chunk); });
  return values;
}

} // namespace

std::vector<std::vector<StageFlight>> orderTransfers(const planner::ScheduleTable &table) {
  int stages = static_cast<int>(table.stages.size()), chunks = stages * table.chunksPerStage;
  auto stageOf = [&](int chunk) { return table.stageOf(chunk); };
  std::vector<std::vector<StageFlight>> order(stages);
  auto add = [&](int chunk, FlightKind kind, int microBatch) {
    order[stageOf(chunk)].push_back({kind, chunk / stages, microBatch});
  };
  for (const MadeValue &value : madeValues(table)) {
    int reader = value.isBackward ? value.chunk - 1 : value.chunk + 1;
    if (reader < 0 || reader == chunks || stageOf(reader) == stageOf(value.chunk))
      continue;
    add(value.chunk, value.isBackward ? FlightKind::DIn : FlightKind::Out, value.microBatch);
    add(reader, value.isBackward ? FlightKind::DOut : FlightKind::In, value.microBatch);
  }
  return order;
}

} // namespace espalier
