// Plays what stages of several chunks were given. The longest chain of a split that was played bounds every other
// split: it is a sum over chunks of what each adds for the layers that it has.
#pragma once

#include "planner/search/chunk_options.h"

#include <array>
#include <memory>
#include <span>
#include <vector>

namespace espalier::planner {

class ChunkPlayer {
public:
  /// `options` gives the axes, their costs and their schedule, and must outlive this.
  explicit ChunkPlayer(const StageOptions &options);

  /// Position in model order of the chunk `chunk` of `stage`, and back.
  int position(int stage, int chunk) const;
  int stageOf(int position) const;

  /// What each chunk, in model order, costs beside its layers; those of all chunks of a stage together.
  const std::vector<ChunkSeconds> &edges() const { return edgesOf; }
  const std::vector<double> &stageEdges() const { return stageEdgesOf; }

  /// Forwards of the edges above each stage: how long it waits for its first micro-batch, at least.
  const std::vector<double> &waits() const { return waitsOf; }

  /// The longest chain when each stage does what its option says; all twice as long on the stage `slow`.
  Chain play(std::span<const ChunkOption *const> stages, int slow = -1);

  /// Seconds of the chain's actions on one chunk that takes so long.
  double seconds(const Chain &chain, int position, const ChunkSeconds &chunk) const {
    const std::array<int, 3> &times = chain.times[position];
    return times[0] * chunk.forward + times[1] * (chunk.backward + (splits ? 0 : chunk.weight)) +
           times[2] * chunk.weight;
  }

  /// Seconds of the chain on one stage under an option.
  double seconds(const Chain &chain, int stage, const ChunkOption &option) const;

  /// The schedule, which is built when it is first asked for.
  const OrderedSchedule &schedule();

private:
  const StageOptions &options;
  const Plan &axes;
  int perStage;
  bool splits;
  std::vector<ChunkSeconds> edgesOf;
  std::vector<double> stageEdgesOf, waitsOf;
  std::shared_ptr<const OrderedSchedule> ordered;
};

ChunkSeconds operator+(const ChunkSeconds &a, const ChunkSeconds &b);

} // namespace espalier::planner
