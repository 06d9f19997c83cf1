#include "planner/search/cuts.h"

namespace espalier::planner {

namespace {

// Seconds of the given number of actions of a chunk.
double pathSeconds(const std::array<double, 3> &counts, const ChunkSeconds &chunk) {
  return counts[0] * chunk.forward + counts[1] * chunk.backward + counts[2] * chunk.weight;
}

} // namespace

SplitPlayer::SplitPlayer(const StageOptions &options)
    : options(options), config(options.config()), perStage(options.chunksPerStage()),
      splitsWeight(splitsBackward(config.schedule)) {
  Placement chunkPlaces = placement(config);
  for (int i = 0; i < config.pp * perStage; ++i)
    edges.push_back(edgeSeconds(options.table(), i, chunkPlaces));
  for (int stage = 0; stage < config.pp; ++stage)
    for (int chunk = 0; chunk < perStage; ++chunk)
      positions.push_back(chunkPlaces.modelChunk(stage, chunk));
}

const OrderedSchedule &SplitPlayer::schedule() {
  if (!ordered)
    ordered = options.schedule();
  return *ordered;
}

// If weight gradients are part of backward, their count equals that of backward.
Cut SplitPlayer::cutOf(const CriticalPath &path) const {
  Cut cut{{}, std::vector<double>(config.pp), path.lastStage, path.seconds};
  for (const std::array<int, 3> &counts : path.counts)
    cut.counts.push_back({double(counts[0]), double(counts[1]), double(splitsWeight ? counts[2] : counts[1])});
  for (int stage = 0; stage < config.pp; ++stage)
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = position(stage, chunk);
      cut.edges[stage] += pathSeconds(cut.counts[i], edges[i]);
    }
  return cut;
}

Cut SplitPlayer::play(std::span<const StageOption *const> stages, int slow) {
  std::vector<ChunkSeconds> seconds(edges.size());
  std::vector<double> steps;
  for (int stage = 0; stage < config.pp; ++stage) {
    for (int chunk = 0; chunk < perStage; ++chunk) {
      int i = position(stage, chunk);
      const ChunkSeconds &own = stages[stage]->seconds[chunk], &edge = edges[i];
      double factor = stage == slow ? 2 : 1;
      seconds[i] = {factor * (own.forward + edge.forward), factor * (own.backward + edge.backward),
                    factor * (own.weight + edge.weight)};
    }
    steps.push_back(stages[stage]->stepSeconds);
  }
  return cutOf(schedule().criticalPath(seconds, steps));
}

double SplitPlayer::seconds(const Cut &cut, int stage, const StageOption &option) const {
  double sum = cut.edges[stage] + (cut.lastStage == stage ? option.stepSeconds : 0);
  for (int chunk = 0; chunk < perStage; ++chunk)
    sum += pathSeconds(cut.counts[position(stage, chunk)], option.seconds[chunk]);
  return sum;
}

} // namespace espalier::planner
