// Ordering keeps one position per stage and advances every stage as far as its inputs allow. Playing follows this
// order.
#include "planner/model/simulate.h"

#include <algorithm>
#include <array>

namespace espalier::planner {

namespace {

// Slots with the end times of forward and backward actions. No action waits for a weight gradient.
struct Slots {
  uint32_t microBatches, chunks;
  uint32_t forward(int chunk, int microBatch) const { return 1 + chunk * microBatches + microBatch; }
  uint32_t backward(int chunk, int microBatch) const { return forward(static_cast<int>(chunks) + chunk, microBatch); }
  uint32_t unused() const { return 1 + 2 * chunks * microBatches; }
};

} // namespace

OrderedSchedule::OrderedSchedule(const ScheduleTable &table)
    : splitsBackward(table.splitsBackward), stages(table.stages.size()) {
  int microBatches = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    if (table.returns)
      peaks.push_back(planner::stagePeaks(table, static_cast<int>(stage)));
    for (const Action &action : table.stages[stage])
      microBatches = std::max(microBatches, action.microBatch + 1);
  }
  orderActions(table, microBatches);
}

void OrderedSchedule::orderActions(const ScheduleTable &table, int microBatches) {
  int last = table.chunks() - 1;
  Slots at{static_cast<uint32_t>(microBatches), static_cast<uint32_t>(last + 1)};
  slots = at.unused() + 1;
  std::vector<bool> done(slots);
  done[0] = true;
  size_t total = 0;
  for (const std::vector<Action> &actions : table.stages)
    total += actions.size();
  order.reserve(total);
  auto advance = [&](int stage, const Action &action) {
    int chunk = table.modelChunk(stage, action.chunk), i = action.microBatch;
    Step step{action, stage, chunk, 0, at.unused()};
    if (action.kind == ActionKind::Forward) {
      step.waitsFor = chunk == 0 ? 0 : at.forward(chunk - 1, i);
      step.end = at.forward(chunk, i);
    } else if (action.kind == ActionKind::Backward) {
      step.waitsFor = chunk == last ? at.forward(chunk, i) : at.backward(chunk + 1, i);
      step.end = at.backward(chunk, i);
      if (!done[at.forward(chunk, i)])
        return false;
    } else {
      step.waitsFor = at.backward(chunk, i);
    }
    if (!done[step.waitsFor])
      return false;
    done[step.end] = true;
    order.push_back(step);
    return true;
  };
  std::vector<size_t> next(stages);
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < table.stageCount; ++stage)
      for (; next[stage] < table.stages[stage].size() && advance(stage, table.stages[stage][next[stage]]); moved = true)
        ++next[stage];
  }
  finished = order.size() == total;
}

std::vector<std::array<double, 3>> OrderedSchedule::durationsOf(const std::vector<ChunkSeconds> &chunks) const {
  std::vector<std::array<double, 3>> durations;
  for (const ChunkSeconds &chunk : chunks)
    durations.push_back({chunk.forward, splitsBackward ? chunk.backward : chunk.backward + chunk.weight, chunk.weight});
  return durations;
}

Played OrderedSchedule::play(const std::vector<ChunkSeconds> &chunks, bool wantTrace) const {
  Played result;
  result.finished = finished;
  result.busySeconds.assign(stages, 0);
  result.endSeconds.assign(stages, 0);
  if (wantTrace)
    result.trace.resize(stages);
  std::vector<std::array<double, 3>> durations = durationsOf(chunks);
  std::vector<double> ends(slots);
  for (const Step &step : order) {
    double start = std::max(ends[step.waitsFor], result.endSeconds[step.stage]);
    double seconds = durations[step.chunk][static_cast<int>(step.action.kind)];
    ends[step.end] = result.endSeconds[step.stage] = start + seconds;
    result.busySeconds[step.stage] += seconds;
    if (wantTrace)
      result.trace[step.stage].push_back({step.action, start, start + seconds});
  }
  for (double end : result.endSeconds)
    result.seconds = std::max(result.seconds, end);
  return result;
}

CriticalPath OrderedSchedule::criticalPath(const std::vector<ChunkSeconds> &chunks,
                                           const std::vector<double> &stepSeconds) const {
  constexpr uint32_t none = ~0U;
  std::vector<std::array<double, 3>> durations = durationsOf(chunks);
  std::vector<double> ends(slots), free(stages);
  std::vector<uint32_t> before(order.size()), endedBy(slots, none), lastOf(stages, none); // indices into `order`
  for (uint32_t i = 0; i < order.size(); ++i) {
    const Step &step = order[i];
    bool waits = ends[step.waitsFor] > free[step.stage];
    before[i] = waits ? endedBy[step.waitsFor] : lastOf[step.stage];
    double start = waits ? ends[step.waitsFor] : free[step.stage];
    ends[step.end] = free[step.stage] = start + durations[step.chunk][static_cast<int>(step.action.kind)];
    endedBy[step.end] = lastOf[step.stage] = i;
  }
  CriticalPath path;
  for (size_t stage = 0; stage < stages; ++stage)
    if (double seconds = free[stage] + stepSeconds[stage]; seconds > path.seconds) {
      path.seconds = seconds;
      path.lastStage = static_cast<int>(stage);
    }
  path.counts.resize(chunks.size());
  for (uint32_t i = lastOf[path.lastStage]; i != none; i = before[i])
    ++path.counts[order[i].chunk][static_cast<int>(order[i].action.kind)];
  return path;
}

Played play(const ScheduleTable &table, const std::vector<ChunkSeconds> &chunks, bool wantTrace) {
  return OrderedSchedule(table).play(chunks, wantTrace);
}

std::shared_ptr<const OrderedSchedule> ScheduleCache::get(Schedule schedule, int stages, int microBatches,
                                                          int virtualStages) {
  Key key(schedule, stages, microBatches, virtualStages);
  {
    std::lock_guard lock(mutex);
    if (auto found = known.find(key); found != known.end())
      return found->second;
  }
  auto built = std::make_shared<const OrderedSchedule>(buildSchedule(schedule, stages, microBatches, virtualStages));
  std::lock_guard lock(mutex);
  if (actions + built->actions() <= mostActions && known.emplace(key, built).second)
    actions += built->actions();
  return built;
}

std::shared_ptr<const std::vector<StagePeaks>> ScheduleCache::stagePeaks(Schedule schedule, int stages,
                                                                         int microBatches, int virtualStages) {
  bool hasClosedForm = !isVShaped(schedule);
  Key key(schedule, stages, hasClosedForm ? std::min(microBatches, kRepeatedBatches * stages) : microBatches,
          virtualStages);
  bool isKept = false; // whether the cache keeps the ordered table
  {
    std::lock_guard lock(mutex);
    if (auto found = peaks.find(key); found != peaks.end())
      return found->second;
    isKept = !hasClosedForm && (known.contains(key) || actions + 6.0 * stages * microBatches <= mostActions);
  }
  if (isKept) { // take the peaks from it
    std::shared_ptr<const OrderedSchedule> ordered = get(schedule, stages, microBatches, virtualStages);
    return {ordered, &ordered->stagePeaks()};
  }
  std::vector<StagePeaks> ofStages;
  ScheduleTable table;
  if (!hasClosedForm)
    table = buildSchedule(schedule, stages, microBatches, virtualStages);
  for (int stage = 0; stage < stages; ++stage)
    ofStages.push_back(hasClosedForm ? planner::stagePeaks(schedule, stage, stages, microBatches, virtualStages)
                                     : planner::stagePeaks(table, stage));
  auto shared = std::make_shared<const std::vector<StagePeaks>>(std::move(ofStages));
  std::lock_guard lock(mutex);
  return peaks.emplace(key, shared).first->second;
}

} // namespace espalier::planner
