// Stages with several choices of what their layers keep, none of which is best whatever the others do: those of several
// chunks, where it matters which chunk repeats work, and those whose kept values are offloaded, where forward is the
// longer the more is kept. One rule lays layers on chunks, another says which of a kind repeat work first, and only how
// many do is chosen.
#pragma once

#include "planner/search/repeat_choices.h"
#include "planner/search/stage_options.h"

#include <span>
#include <vector>

namespace espalier::planner {

/// The chunks of one stage with what they keep.
struct ChunkOption {
  bool fits = false;
  std::vector<ChunkSeconds> seconds;    ///< of the layers of each chunk; see edgeSeconds
  double stepSeconds = 0;               ///< of the whole stage, once per step
  double bytes = 0, hostBytes = 0;      ///< of the whole stage, on the device and in host memory; see price()
  std::vector<RepeatedLayers> repeated; ///< of each kind of layer on the stage
  double unproved = 0;                  ///< of backward: another choice that fits may take less by so much
};

class ChunkOptions {
public:
  /// `options` gives the axes, their costs and their schedule; both must outlive this.
  ChunkOptions(const Problem &problem, const StageOptions &options);

  /// Choices that fit: of any two each is faster in some action of some chunk. The fastest in all comes first. When
  /// nothing fits, that which needs the least share of what there is. Their bytes are not summed where they fit.
  std::vector<ChunkOption> choices(int stage, std::span<const LayerRange> chunks);

  /// The first of them alone, which is quicker.
  ChunkOption best(int stage, std::span<const LayerRange> chunks);

  /// The same for layers that are all alike, remembered.
  const std::vector<ChunkOption> &choices(int stage, int layers);
  const ChunkOption &best(int stage, int layers);

  /// A given choice, with its bytes.
  ChunkOption price(int stage, std::span<const LayerRange> chunks, const std::vector<RepeatedLayers> &repeated);

  /// False when with very many kinds of layers some choices were left out.
  bool isComplete() const { return complete; }

private:
  void countHeld();
  StageRoom roomOf(int stage) const;
  std::vector<RepeatedLayers> fastest(const std::vector<LikeLayers> &kinds) const;
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
  bool complete = true;
  StageContent content;            // of the stage that is priced
  std::vector<StageContent> parts; // its chunks alone, and what they keep
  std::vector<SavedBytes> saved;
};

/// Whether a stage has several choices of what its layers keep, so that ChunkOptions holds them and not StageOptions.
bool hasSeveralChoices(const Problem &problem, const Plan &axes);

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
