// Stages of several chunks: how a stage's layers are laid on its chunks and what they keep. Here it matters which chunk
// repeats work, so that not every choice is gone through: one rule lays layers, another spreads what is repeated, and
// only how much of each is chosen.
#pragma once

#include "planner/split_layers.h"

#include <span>
#include <vector>

namespace espalier::planner {

/// A chunk's layers: first .. first + count - 1.
struct LayerRange {
  int first = 0, count = 0;
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

  /// Choices that fit: of any two each repeats less on some chunk. That which repeats least comes first. When nothing
  /// fits, that which needs the fewest bytes.
  std::vector<ChunkOption> choices(int stage, std::span<const LayerRange> chunks);

  /// The first of them alone, which is quicker.
  ChunkOption best(int stage, std::span<const LayerRange> chunks);

  /// The same for layers that are all alike, remembered.
  const std::vector<ChunkOption> &choices(int stage, int layers);
  const ChunkOption &best(int stage, int layers);

  /// A given choice.
  ChunkOption price(int stage, std::span<const LayerRange> chunks, const RepeatedLayers &repeated);

  /// What each layer of each chunk keeps. Layers repeat work in the order of their places in their chunks, the first of
  /// every chunk before the second of any, so that chunks repeat as evenly as they can.
  std::vector<std::vector<Recompute>> keep(std::span<const LayerRange> chunks, const RepeatedLayers &repeated) const;

private:
  void countHeld();
  std::vector<ChunkOption> choose(int stage, std::span<const LayerRange> chunks, bool isOne);
  using Table = std::vector<std::vector<std::vector<ChunkOption>>>; ///< [stage][layers]
  template <typename Find> const std::vector<ChunkOption> &remembered(Table &table, int stage, int layers, Find find);

  const Problem &problem;
  const StageOptions &options;
  const Plan &axes;
  const CostTable &costs;
  int perStage;
  std::shared_ptr<const std::vector<HeldChunks>> held; // per stage
  std::vector<int> likeStage;                          // the first stage that holds and costs the same
  std::vector<double> mostInFlight;                    // chunks that each stage holds at once
  Table all, first;
  std::vector<StageContent> parts; // of the stage that is priced: its chunks alone, and what they keep
  std::vector<SavedBytes> saved;
};

/// Layers of each chunk in model order where stages hold `totals`. The chunks of a stage differ by at most one layer;
/// the first ones have more, but on the first stage of an interleaved schedule, whose first chunk has the embedding,
/// the last.
std::vector<int> spreadOverChunks(const Plan &axes, const std::vector<int> &totals);

/// The layers of one of the chunks of a stage, in its own order, when the stage holds `layers`.
int layersOfChunk(const Plan &axes, int stage, int chunk, int layers);

/// Fewest layers of a stage: one for each chunk, but of several for those that hold the embedding or the head.
int leastLayers(const Problem &problem, const Plan &axes, int stage);

/// The same of all stages together.
int leastLayers(const Problem &problem, const Plan &axes);

} // namespace espalier::planner
