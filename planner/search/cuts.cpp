#include "planner/search/cuts.h"

namespace espalier::planner {

SplitPlayer::SplitPlayer(const StageOptions &options)
    : options(options), axes(options.axes()), perStage(chunksOf(axes.schedule, axes.virtualStages)),
      splits(splitsBackward(axes.schedule)), stageEdges(axes.pp) {
  bool vShape = isVShaped(axes.schedule);
  for (int i = 0; i < axes.pp * perStage; ++i) {
    edges.push_back(edgeSeconds(options.table(), i, axes.pp, perStage, vShape));
    stageEdges[stageOfChunk(i, axes.pp, perStage, vShape)] += edges.back().total();
  }
  for (int stage = 0; stage < axes.pp; ++stage)
    for (int chunk = 0; chunk < perStage; ++chunk)
      positions.push_back(modelChunk(stage, chunk, axes.pp, vShape));
  for (int stage = 0; stage < axes.pp; ++stage)
    waits.push_back(stage > 0 ? waits.back() + edges[stage - 1].forward : 0);
}

const OrderedSchedule &SplitPlayer::schedule() {
  if (!ordered)
    ordered = options.schedule();
  return *ordered;
}

// Where weight gradients are part of backward they count as often as it does.
Cut SplitPlayer::cutOf(const Chain &chain) const {
  Cut cut{{}, std::vector<double>(axes.pp), chain.lastStage, chain.seconds};
  for (const std::array<int, 3> &times : chain.times)
    cut.times.push_back({double(times[0]), double(times[1]), double(splits ? times[2] : times[1])});
  for (int stage = 0; stage < axes.pp; ++stage)
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = position(stage, chunk);
      cut.edges[stage] += seconds(cut.times[i], edges[i]);
    }
  return cut;
}

Cut SplitPlayer::play(std::span<const StageOption *const> stages, int slow) {
  std::vector<ChunkSeconds> seconds(edges.size());
  std::vector<double> steps;
  for (int stage = 0; stage < axes.pp; ++stage) {
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = position(stage, chunk);
      const ChunkSeconds &own = stages[stage]->seconds[chunk], &edge = edges[i];
      double factor = stage == slow ? 2 : 1;
      seconds[i] = {factor * (own.forward + edge.forward), factor * (own.backward + edge.backward),
                    factor * (own.weight + edge.weight)};
    }
    steps.push_back(stages[stage]->stepSeconds);
  }
  return cutOf(schedule().longestChain(seconds, steps));
}

double SplitPlayer::seconds(const Cut &cut, int stage, const StageOption &option) const {
  double sum = cut.edges[stage] + (cut.lastStage == stage ? option.stepSeconds : 0);
  for (int chunk = 0; chunk < perStage; ++chunk)
    sum += seconds(cut.times[position(stage, chunk)], option.seconds[chunk]);
  return sum;
}

} // namespace espalier::planner
