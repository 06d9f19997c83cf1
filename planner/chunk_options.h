// Stages of several chunks: how a stage's layers are laid on its chunks and what they keep. Here it matters which chunk
// repeats work, so that not every choice is gone through: one rule lays layers, another spreads what is repeated, and
// only how much of each is chosen.
#pragma once

#include "planner/stage_options.h"

#include <optional>
#include <span>
#include <vector>

namespace espalier::planner {

/// A chunk's layers: first .. first + count - 1.
struct LayerRange {
  int first = 0, count = 0;
};

/// How many layers of a stage repeat work: the first `full` in spreading order, then `selective`.
struct RepeatedLayers {
  int full = 0, selective = 0;
};

/// The chunks of one stage with what they keep.
struct ChunkOption {
  bool fits = false;
  std::vector<ChunkSeconds> seconds; ///< of the layers of each chunk; see edgeSeconds
  double stepSeconds = 0;            ///< of the whole stage, once per step
  double bytes = 0, hostBytes = 0;   ///< of the whole stage, on the device and in host memory; when nothing fits, least
  double fixedBytes = 0;             ///< of `bytes`, what does not depend on what is kept
  RepeatedLayers repeated;
};

class ChunkOptions {
public:
  /// `options` gives the axes, their costs and their schedule; both must outlive this.
  ChunkOptions(const Problem &problem, const StageOptions &options);

  /// The choice that fits and repeats least.
  ChunkOption best(int stage, std::span<const LayerRange> chunks);

  /// The same for layers that are all alike, remembered.
  const ChunkOption &best(int stage, int layers);

  /// What each layer of each chunk keeps. Layers repeat work in the order of their places in their chunks, the first of
  /// every chunk before the second of any, so that chunks repeat as evenly as they can.
  std::vector<std::vector<Recompute>> keep(std::span<const LayerRange> chunks, const RepeatedLayers &repeated) const;

private:
  void countHeld();
  ChunkOption price(int stage, std::span<const LayerRange> chunks, const RepeatedLayers &repeated) const;

  const Problem &problem;
  const StageOptions &options;
  const Plan &axes;
  const CostTable &costs;
  int perStage;
  std::shared_ptr<const std::vector<HeldChunks>> held;        // per stage
  std::vector<int> likeStage;                                 // the first stage that holds and costs the same
  std::vector<std::vector<std::optional<ChunkOption>>> known; // [stage][layers]
};

/// Layers of each chunk in model order where stages hold `totals`. The chunks of a stage differ by at most one layer;
/// the first ones have more, but on the first stage of an interleaved schedule, whose first chunk has the embedding,
/// the last.
std::vector<int> spreadOverChunks(const Plan &axes, const std::vector<int> &totals);

/// The chunks of one stage alone, in its own order, as spreadOverChunks() lays them.
std::vector<int> chunkLayers(const Plan &axes, int stage, int layers);

/// Fewest layers of a stage: one for each chunk, but of several for those that hold the embedding or the head.
int leastLayers(const Problem &problem, const Plan &axes, int stage);

/// The same of all stages together.
int leastLayers(const Problem &problem, const Plan &axes);

} // namespace espalier::planner
