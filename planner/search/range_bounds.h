// Layers in model order are cut into one range for each chunk. How long chains of actions are at least, wherever the
// cuts lie and whatever layers keep that a stage has room for: a dynamic program over the chunks in model order.
#pragma once

#include "planner/search/chunk_player.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier::planner {

/// Seconds that a byte counts at each of the fullest moments of each stage: [stage][moment]. No step is shorter than a
/// chain and what the bytes over the room of each stage count (Lagrangian relaxation).
using BytePrices = std::vector<std::vector<double>>;

/// A mean of chains with weights that sum to 1, or one chain: whatever the split, a step is no shorter.
struct ChainMean {
  /// Per chunk in model order: how often its forward, backward and weight gradients count.
  std::vector<std::array<double, 3>> times;
  std::vector<double> ends; ///< per stage: how often its work once per step counts
  std::vector<std::vector<double>>
      before;                ///< seconds of the layers before each, if they lie on a chunk: [chunk][layer]
  std::vector<double> edges; ///< seconds of each chunk beside its layers, less its stage's room

  /// What the chain takes at least on a chunk of these layers.
  double seconds(int position, int first, int count) const {
    return before[position][first + count] - before[position][first] + edges[position];
  }
};

/// Layers on chunks with what each keeps that is least under a mean.
struct LaidLayers {
  std::vector<ChunkSeconds> seconds; ///< per chunk, its edges among them
  std::vector<double> steps;         ///< per stage
  BytePrices over;                   ///< what is held beyond the room, as a share of it: [stage][moment]
};

class RangeBounds {
public:
  RangeBounds(const Problem &problem, const StageOptions &options, const ChunkPlayer &player);

  /// What stages have room for is known from here on.
  void readRoom();
  const BytePrices &noPrices() const { return free; }

  /// Prices under which the whole room of a stage is worth a share of `seconds`.
  BytePrices prices(BytePrices shares, double seconds) const;

  /// Times alone; tabulate() does the rest.
  ChainMean chainOf(const Chain &chain) const;
  ChainMean meanOf(std::span<const ChainMean> chains, std::span<const double> weights) const;
  void tabulate(ChainMean &mean, const BytePrices &prices) const;

  LaidLayers lay(const ChainMean &mean, const BytePrices &prices, const std::vector<int> &counts) const;

  /// What a chain takes so, and on one stage under an option.
  double seconds(const ChainMean &chain, const LaidLayers &laid) const;
  double seconds(const ChainMean &chain, int stage, const ChunkOption &option) const;

  /// What a chain takes at least on a stage with these layers on its chunks, whatever they keep that there is room for.
  double leastOn(const ChainMean &chain, int stage, std::span<const LayerRange> ranges) const;

  /// Narrows what chunks may have to what lets each stage alone end by `seconds`. False when that leaves nothing;
  /// whether anything changed is told by changes().
  bool narrow(double seconds);
  int changes() const { return changed; }

  /// Layers that a chunk may have which starts at `first`, from fewest to most; none where most < fewest.
  std::pair<int, int> counts(int position, int first) const;
  int fewestOf(int position) const { return fewest[position]; }
  int chunks() const { return static_cast<int>(fewest.size()); }
  int layers() const { return static_cast<int>(totals.size()) - 1; }

  /// What a chain takes on the chunks from a position on, at least.
  class Rest {
  public:
    double from(int position, int first) const { return seconds[position][first - lowest[position]]; }

  private:
    friend class RangeBounds;
    std::vector<int> lowest;
    std::vector<std::vector<double>> seconds;
  };
  Rest rest(const ChainMean &chain) const;

  /// How many sums a Rest and a mean take.
  int64_t work() const;
  int64_t meanWork() const { return static_cast<int64_t>(chunks()) * layers() / 8; }

  /// Layers of each chunk under which the chain is shortest.
  std::vector<int> shortest(const ChainMean &chain, const Rest &rest) const;

  /// Layers of each chunk so that the longest of them is as short as can be.
  std::vector<int> balanced() const;

private:
  int end(int position, int first, double most) const;
  void readKinds(const std::optional<Recompute> &pinned);
  struct Priced {
    double seconds = 0, over = 0; ///< bytes over the room
  };
  Priced priceOn(const ChainMean &chain, int stage, std::span<const LayerRange> ranges, size_t moment,
                 double price) const;
  double stateBytes(const SegmentCost &cost) const;
  double heldPrice(int stage, int chunk, const BytePrices &prices) const;

  // A layer of a kind under a class of recompute.
  struct Kept {
    ChunkSeconds seconds;
    double bytes = 0; ///< of one micro-batch
  };
  struct Kind {
    std::vector<Kept> classes; ///< that may be least
    double stepSeconds = 0, stateBytes = 0;
    double transientBytes = 0; ///< least of any class, in the memory where layers keep values
  };
  struct Room {
    HeldChunks held;
    std::vector<double> bytes; ///< at each moment, for state and what is kept of layers
  };
  const Kept &leastOf(const Kind &kind, const std::array<double, 3> &times, double price) const;

  const Problem &problem;
  const StageOptions &options;
  const CostTable &costs;
  const Plan &axes;
  const ChunkPlayer &player;
  bool splits;
  double microBatches;
  std::vector<Kind> kinds;
  std::vector<Room> rooms;       // per stage, once they were read
  BytePrices free;               // 0 each
  std::vector<double> totals;    // least of the layers before each
  std::vector<double> edgeSteps; // of the embedding and the head
  std::vector<int> fewest, fewestBefore;
  std::vector<double> mostSeconds;   // of the layers of each chunk
  std::vector<int> earliest, latest; // where each chunk may start
  std::vector<double> otherSeconds;  // of a stage's other chunks, at least
  int changed = 0;
};

} // namespace espalier::planner
