// Layers of one kind: for each number of layers that recompute everything, the fewest that
// recompute some. Layers of several kinds: one class for the whole stage.
#include "planner/stage_options.h"

#include <algorithm>
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
      seconds.forward += count * cost.forward.total();
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
  for (int stage = 0; stage < plan.pp; ++stage)
    inFlight.push_back(chunksInFlight(plan.schedule, stage, plan.pp,
                                      static_cast<int>(plan.microBatches), plan.virtualStages));
}

ChunkSeconds edgeSeconds(const CostTable &costs, int chunk, int stages, int chunksPerStage,
                         bool vShape) {
  int last = stages * chunksPerStage - 1,
      here = stageOfChunk(chunk, stages, chunksPerStage, vShape);
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
  bool vShape = plan.schedule == Schedule::ZeroBubbleV;
  content.embed = stage == 0;
  content.head = vShape ? stage == 0 : stage == plan.pp - 1;
  content.receives = plan.pp > 1 && (stage > 0 || content.chunks > 1);
  content.sends = plan.pp > 1 && (stage < plan.pp - 1 || content.chunks > 1);
  content.inFlight = inFlight[stage];
  content.layers.resize(problem.kinds.size());
  return content;
}

const StageOption &StageOptions::best(int stage, int first, int count) {
  // Stages between the ends that hold equally much are alike, and so are positions of equal layers.
  int stageClass = stage;
  bool inner = stage > 0 && stage < plan.pp - 1;
  if (inner && inFlight[stage] == inFlight[1])
    stageClass = 1;
  std::tuple key(stageClass, oneKind ? 0 : first, count);
  auto found = known.find(key);
  if (found == known.end())
    found = known.emplace(key, choose(stage, first, count)).first;
  return found->second;
}

StageOption StageOptions::choose(int stage, int first, int count) const {
  StageContent content = contentOf(stage);
  if (oneKind && !problem.pins.recompute)
    return chooseAlike(content, costs.layerKinds.front(), count);
  return chooseUniform(content, first, count);
}

StageOption StageOptions::finish(const StageContent &content,
                                 std::vector<Recompute> recompute) const {
  StageOption option;
  option.bytes = stageMemory(problem, costs, content).total();
  option.fits = option.bytes <= problem.machine.memoryBytes;
  option.seconds = chunkSeconds(costs, content);
  option.stepSeconds = stepPhase(costs, content).total();
  option.recompute = std::move(recompute);
  return option;
}

namespace {

std::vector<Recompute> classes(int none, int selective, int full) {
  std::vector<Recompute> list(full, Recompute::Full);
  list.insert(list.end(), selective, Recompute::Selective);
  list.insert(list.end(), none, Recompute::None);
  return list;
}

bool better(const StageOption &a, const StageOption &b) {
  if (a.fits != b.fits)
    return a.fits;
  if (!a.fits)
    return a.bytes < b.bytes;
  if (a.seconds.backward != b.seconds.backward)
    return a.seconds.backward < b.seconds.backward;
  return a.bytes < b.bytes;
}

} // namespace

StageOption StageOptions::chooseAlike(StageContent content, int kind, int count) const {
  const SegmentCost &cost = costs.kinds[kind];
  double saves = (cost.savedBytes[0] - cost.savedBytes[1]) * content.inFlight;
  std::optional<StageOption> best;
  auto consider = [&](int selective, int full) {
    content.layers[kind] = {count - selective - full, selective, full};
    StageOption option = finish(content, classes(count - selective - full, selective, full));
    if (!best || better(option, *best))
      best = std::move(option);
    return best->fits;
  };
  for (int full = 0; full <= count; ++full) {
    int rest = count - full;
    if (consider(0, full) && full == 0)
      return *best; // nothing is repeated: no choice is faster
    if (rest == 0)
      continue;
    consider(rest, full);
    if (rest < 2 || saves <= 0)
      continue;
    // Fewest selective layers that fit beside layers that keep everything: memory is linear in
    // their number.
    content.layers[kind] = {rest - 1, 1, full};
    double over = stageMemory(problem, costs, content).total() - problem.machine.memoryBytes;
    int selective = over <= 0 ? 1 : 1 + static_cast<int>(std::ceil(over / saves - 1e-9));
    for (int more = 0; more < 2 && selective + more < rest;
         ++more) // the second guards against rounding
      consider(selective + more, full);
  }
  return *best;
}

StageOption StageOptions::chooseUniform(StageContent content, int first, int count) const {
  std::optional<StageOption> best;
  for (Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
    if (problem.pins.recompute && recompute != *problem.pins.recompute)
      continue;
    content.layers.assign(problem.kinds.size(), {});
    for (int layer = first; layer < first + count; ++layer)
      ++content.layers[costs.layerKinds[layer]][static_cast<int>(recompute)];
    StageOption option = finish(content, std::vector<Recompute>(count, recompute));
    if (!best || better(option, *best))
      best = std::move(option);
  }
  return *best;
}

} // namespace espalier::planner
