// Layers of one kind: for each number of layers that recompute everything, the fewest that
// recompute some. Layers of several kinds: one class for the whole stage.
#include "planner/stage_options.h"

#include <cmath>

namespace espalier::planner {

ChunkSeconds chunkSeconds(const CostTable &table, const StageContent &content) {
  ChunkSeconds seconds;
  for (size_t kind = 0; kind < content.layers.size(); ++kind)
    for (int recompute = 0; recompute < 3; ++recompute) {
      int count = content.layers[kind][recompute];
      if (count == 0)
        continue;
      const SegmentCost &cost = table.kinds[kind];
      seconds.forward += count * (cost.forward.total() + cost.forwardTransfer[recompute]);
      seconds.backward += count * (cost.backward.total() + cost.recompute[recompute].total());
      seconds.weight += count * cost.weight.total();
    }
  return seconds;
}

PhaseSeconds stepPhase(const CostTable &table, const StageContent &content) {
  PhaseSeconds sum;
  std::array<double, kAxes> hideable{};
  double backward = 0, hidden = 0;
  auto add = [&](const SegmentCost &cost, double count) {
    sum.compute += count * cost.step.compute;
    sum.hostTransfer += count * cost.step.hostTransfer;
    backward += count * (cost.backward.total() + cost.weight.total());
    for (int axis = 0; axis < kAxes; ++axis) {
      sum.communication[axis] += count * cost.step.communication[axis];
      hideable[axis] += count * cost.hideableStep[axis];
      hidden += count * cost.hideableStep[axis];
    }
  };
  for (size_t kind = 0; kind < content.layers.size(); ++kind)
    for (int count : content.layers[kind])
      if (count > 0)
        add(table.kinds[kind], static_cast<double>(content.chunks) * count);
  if (content.embed)
    add(table.embed, 1);
  if (content.head)
    add(table.head, 1);
  if (content.embed != content.head)
    sum.communication[static_cast<int>(Axis::Dp)] += table.tiedSeconds;
  double exposed = hidden > 0 ? overlappedSeconds(backward, hidden) - backward : 0;
  for (int axis = 0; axis < kAxes && hidden > 0; ++axis)
    sum.communication[axis] += exposed * hideable[axis] / hidden;
  return sum;
}

StageOptions::StageOptions(const Problem &problem, const Plan &plan)
    : problem(problem), plan(plan), costs(buildCostTable(problem, plan)) {
  this->plan.stages.clear();
  for (int kind : costs.layerKinds)
    oneKind = oneKind && kind == costs.layerKinds.front();
  if (!oneKind || costs.commonRecompute) {
    ranges.emplace(costs);
    range = costs;
    range.kinds.resize(1);
  }
}

// A V-shaped schedule is a table for all stages, which is not built before the first stage is asked for.
void StageOptions::countInFlight() {
  int microBatches = static_cast<int>(plan.microBatches);
  ScheduleTable schedule;
  if (isVShaped(plan.schedule))
    schedule = buildSchedule(plan.schedule, plan.pp, microBatches, plan.virtualStages);
  for (int stage = 0; stage < plan.pp; ++stage)
    inFlight.push_back(isVShaped(plan.schedule)
                           ? peakInFlight(schedule, stage)
                           : chunksInFlight(plan.schedule, stage, plan.pp, microBatches, plan.virtualStages));
}

ChunkSeconds edgeSeconds(const CostTable &costs, int chunk, int stages, int chunksPerStage, bool vShape) {
  int last = stages * chunksPerStage - 1, here = stageOfChunk(chunk, stages, chunksPerStage, vShape);
  ChunkSeconds seconds;
  if (chunk < last && stageOfChunk(chunk + 1, stages, chunksPerStage, vShape) != here)
    seconds.forward += costs.boundarySeconds;
  if (chunk > 0 && stageOfChunk(chunk - 1, stages, chunksPerStage, vShape) != here)
    seconds.backward += costs.boundarySeconds;
  bool embed = chunk == 0, head = chunk == last;
  for (const auto &[present, cost] : {std::pair(embed, &costs.embed), std::pair(head, &costs.head)})
    if (present) {
      seconds.forward += cost->forward.total();
      seconds.backward += cost->backward.total();
      seconds.weight += cost->weight.total();
    }
  return seconds;
}

StageContent StageOptions::contentOf(int stage) const {
  StageContent content;
  content.chunks = chunksOf(plan.schedule, plan.virtualStages);
  bool vShape = isVShaped(plan.schedule);
  content.embed = stage == 0;
  content.head = vShape ? stage == 0 : stage == plan.pp - 1;
  content.receives = plan.pp > 1 && (stage > 0 || content.chunks > 1);
  content.sends = plan.pp > 1 && (stage < plan.pp - 1 || content.chunks > 1);
  content.inFlight = inFlight[stage];
  content.headInFlight = headsInFlight(plan.schedule, content.inFlight, plan.pp, static_cast<int>(plan.microBatches));
  return content;
}

const StageOption &StageOptions::best(int stage, int first, int count) {
  // Stages between the ends that hold equally much are alike, and so are positions of equal layers.
  if (inFlight.empty())
    countInFlight();
  int stageClass = stage;
  bool inner = stage > 0 && stage < plan.pp - 1;
  if (inner && inFlight[stage] == inFlight[1])
    stageClass = 1;
  uint64_t key = (static_cast<uint64_t>(stageClass) << 42) | (static_cast<uint64_t>(oneKind ? 0 : first) << 21) |
                 static_cast<uint64_t>(count); // a model has fewer than two million layers
  auto found = known.find(key);
  if (found == known.end())
    found = known.emplace(key, choose(stage, first, count)).first;
  return found->second;
}

StageOption StageOptions::choose(int stage, int first, int count) {
  StageContent content = contentOf(stage);
  if (oneKind && !costs.commonRecompute) {
    content.layers.resize(problem.kinds.size());
    return chooseAlike(content, costs.layerKinds.front(), count);
  }
  return chooseUniform(content, first, count);
}

StageOption StageOptions::finish(const CostTable &table, const StageContent &content, std::array<int, 3> kept) const {
  StageOption option;
  StageMemory memory = stageMemory(problem, table, content);
  option.bytes = memory.total();
  option.hostBytes = memory.host();
  option.fits = option.bytes <= problem.machine.memoryBytes && option.hostBytes <= problem.machine.hostShareBytes();
  option.seconds = chunkSeconds(table, content);
  option.stepSeconds = stepPhase(table, content).total();
  option.kept = kept;
  return option;
}

std::vector<Recompute> StageOption::recompute() const {
  std::vector<Recompute> list(kept[2], Recompute::Full);
  list.insert(list.end(), kept[1], Recompute::Selective);
  list.insert(list.end(), kept[0], Recompute::None);
  return list;
}

namespace {

bool better(const StageOption &a, const StageOption &b) {
  if (a.fits != b.fits)
    return a.fits;
  if (!a.fits)
    return a.bytes < b.bytes;
  if (a.seconds.backward != b.seconds.backward)
    return a.seconds.backward < b.seconds.backward;
  return a.bytes < b.bytes;
}

// A choice while it is compared: only what differs between choices.
struct Choice {
  std::array<int, 3> kept{};
  double repeated = 0, bytes = 0;
};

} // namespace

// Saved bytes are linear in the counts and the workspace is that of the widest class present, so
// the least bytes are reached where all layers keep the same: when none of those three fits,
// nothing does.
StageOption StageOptions::chooseAlike(StageContent content, int kind, int count) const {
  const SegmentCost &cost = costs.kinds[kind];
  std::array<double, 3> saved{}, repeats{};
  for (int i = 0; i < 3; ++i) {
    saved[i] = cost.savedBytes[i] * content.inFlight;
    repeats[i] = cost.recompute[i].total();
  }
  std::optional<Choice> best;
  auto bytesOf = [&](const std::array<int, 3> &kept) {
    content.layers[kind] = kept;
    return stageMemory(problem, costs, content).total();
  };
  auto consider = [&](int selective, int full) {
    Choice choice{{count - selective - full, selective, full}, selective * repeats[1] + full * repeats[2]};
    if (best && choice.repeated > best->repeated)
      return;
    choice.bytes = bytesOf(choice.kept);
    if (choice.bytes <= problem.machine.memoryBytes &&
        (!best || std::tie(choice.repeated, choice.bytes) < std::tie(best->repeated, best->bytes)))
      best = choice;
  };
  consider(0, 0);
  if (!best) {
    consider(count, 0);
    consider(0, count);
    for (int full = 0; best && full < count && full * repeats[2] <= best->repeated; ++full) {
      int rest = count - full;
      consider(0, full);
      consider(rest, full);
      if (rest < 2 || saved[0] <= saved[1])
        continue;
      // Fewest selective layers beside layers that keep everything.
      double over = bytesOf({rest - 1, 1, full}) - problem.machine.memoryBytes;
      int selective = over <= 0 ? 1 : 1 + static_cast<int>(std::ceil(over / (saved[0] - saved[1]) - 1e-9));
      for (int more = 0; more < 2 && selective + more < rest; ++more) // the second guards against rounding
        consider(selective + more, full);
    }
  }
  std::array<int, 3> kept = best ? best->kept : std::array<int, 3>{0, 0, count};
  if (!best) // for the report: whichever needs least
    for (const std::array<int, 3> &other : {std::array<int, 3>{count, 0, 0}, std::array<int, 3>{0, count, 0}})
      if (bytesOf(other) < bytesOf(kept))
        kept = other;
  content.layers[kind] = kept;
  return finish(costs, content, kept);
}

StageOption StageOptions::chooseUniform(StageContent content, int first, int count) {
  std::optional<StageOption> best;
  range.kinds[0] = ranges->of(first, count);
  for (Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
    if (costs.commonRecompute && recompute != *costs.commonRecompute)
      continue;
    int index = static_cast<int>(recompute);
    content.layers.assign(1, {});
    content.layers[0][index] = 1;
    std::array<int, 3> kept{};
    kept[index] = count;
    StageOption option = finish(range, content, kept);
    if (!best || better(option, *best))
      best = option;
  }
  return *best;
}

} // namespace espalier::planner
