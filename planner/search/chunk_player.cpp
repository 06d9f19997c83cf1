#include "planner/search/chunk_player.h"

#include <algorithm>

namespace espalier::planner {

ChunkPlayer::ChunkPlayer(const StageOptions &options)
    : options(options), axes(options.axes()), perStage(chunksOf(axes.schedule, axes.virtualStages)),
      splits(splitsBackward(axes.schedule)), stageEdgesOf(axes.pp) {
  for (int i = 0; i < axes.pp * perStage; ++i) {
    edgesOf.push_back(edgeSeconds(options.table(), i, axes.pp, perStage, isVShaped(axes.schedule)));
    stageEdgesOf[stageOf(i)] += edgesOf.back().total();
  }
  for (int stage = 0; stage < axes.pp; ++stage)
    waitsOf.push_back(stage > 0 ? waitsOf.back() + edgesOf[stage - 1].forward : 0);
}

int ChunkPlayer::position(int stage, int chunk) const {
  return modelChunk(stage, chunk, axes.pp, isVShaped(axes.schedule));
}

int ChunkPlayer::stageOf(int position) const {
  return stageOfChunk(position, axes.pp, perStage, isVShaped(axes.schedule));
}

Chain ChunkPlayer::play(std::span<const ChunkOption *const> stages, int slow) {
  std::vector<ChunkSeconds> seconds(edgesOf.size());
  std::vector<double> steps;
  for (int stage = 0; stage < axes.pp; ++stage) {
    for (int chunk = 0; chunk < perStage; ++chunk) {
      ChunkSeconds &here = seconds[position(stage, chunk)];
      here = stages[stage]->seconds[chunk] + edgesOf[position(stage, chunk)];
      if (stage == slow)
        here = here + here;
    }
    steps.push_back(stages[stage]->stepSeconds);
  }
  return schedule().longestChain(seconds, steps);
}

double ChunkPlayer::seconds(const Chain &chain, int stage, const ChunkOption &option) const {
  double sum = chain.lastStage == stage ? option.stepSeconds : 0;
  for (int chunk = 0; chunk < perStage; ++chunk) {
    int i = position(stage, chunk);
    sum += seconds(chain, i, option.seconds[chunk] + edgesOf[i]);
  }
  return sum;
}

const OrderedSchedule &ChunkPlayer::schedule() {
  if (!ordered)
    ordered = options.schedule();
  return *ordered;
}

ChunkSeconds operator+(const ChunkSeconds &a, const ChunkSeconds &b) {
  return {a.forward + b.forward, a.backward + b.backward, a.weight + b.weight};
}

} // namespace espalier::planner
