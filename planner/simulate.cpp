// The player keeps one position per stage and advances every stage as far as its inputs allow.
#include "planner/simulate.h"

#include <algorithm>

namespace espalier::planner {

namespace {

class Player {
public:
  Player(const ScheduleTable &table, const std::vector<ChunkSeconds> &chunks, bool wantTrace)
      : table(table), chunks(chunks), stages(static_cast<int>(table.stages.size())), wantTrace(wantTrace) {
    int microBatches = 0;
    for (const std::vector<Action> &actions : table.stages)
      for (const Action &action : actions)
        microBatches = std::max(microBatches, action.microBatch + 1);
    forwardEnd.assign(chunks.size(), std::vector<double>(microBatches, -1));
    backwardEnd = forwardEnd;
    next.assign(stages, 0);
    result.busySeconds.assign(stages, 0);
    result.endSeconds.assign(stages, 0);
    if (wantTrace)
      result.trace.resize(stages);
  }

  Played run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages; ++stage)
        while (next[stage] < table.stages[stage].size() && advance(stage))
          moved = true;
    }
    result.finished = true;
    for (int stage = 0; stage < stages; ++stage) {
      result.finished = result.finished && next[stage] == table.stages[stage].size();
      result.seconds = std::max(result.seconds, result.endSeconds[stage]);
    }
    return std::move(result);
  }

private:
  // Time at which the inputs are there; negative when that is not known yet.
  double inputsReady(const Action &action, int chunk) const {
    int last = static_cast<int>(chunks.size()) - 1, i = action.microBatch;
    switch (action.kind) {
    case ActionKind::Forward:
      return chunk == 0 ? 0 : forwardEnd[chunk - 1][i];
    case ActionKind::Backward:
      if (forwardEnd[chunk][i] < 0)
        return -1;
      return chunk == last ? forwardEnd[chunk][i] : backwardEnd[chunk + 1][i];
    case ActionKind::Weight:
      return backwardEnd[chunk][i];
    }
    return -1;
  }

  double duration(ActionKind kind, const ChunkSeconds &chunk) const {
    if (kind == ActionKind::Forward)
      return chunk.forward;
    if (kind == ActionKind::Weight)
      return chunk.weight;
    return table.splitsBackward ? chunk.backward : chunk.backward + chunk.weight;
  }

  bool advance(int stage) {
    const Action &action = table.stages[stage][next[stage]];
    int chunk = modelChunk(stage, action.chunk, stages, table.vShape);
    double ready = inputsReady(action, chunk);
    if (ready < 0)
      return false;
    double start = std::max(ready, result.endSeconds[stage]);
    double seconds = duration(action.kind, chunks[chunk]);
    result.endSeconds[stage] = start + seconds;
    result.busySeconds[stage] += seconds;
    if (action.kind == ActionKind::Forward)
      forwardEnd[chunk][action.microBatch] = start + seconds;
    else if (action.kind == ActionKind::Backward)
      backwardEnd[chunk][action.microBatch] = start + seconds;
    if (wantTrace)
      result.trace[stage].push_back({action, start, start + seconds});
    ++next[stage];
    return true;
  }

  const ScheduleTable &table;
  const std::vector<ChunkSeconds> &chunks;
  int stages;
  bool wantTrace;
  std::vector<std::vector<double>> forwardEnd, backwardEnd; // [model chunk][micro-batch]
  std::vector<size_t> next;
  Played result;
};

} // namespace

Played play(const ScheduleTable &table, const std::vector<ChunkSeconds> &chunks, bool wantTrace) {
  return Player(table, chunks, wantTrace).run();
}

} // namespace espalier::planner
