// Layers in model order are cut into one range for each chunk. How long chains of actions are at least, wherever the
// cuts lie: a dynamic program over the chunks in model order.
#pragma once

#include "planner/chunk_player.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier::planner {

/// A mean of chains with weights that sum to 1, or one chain: whatever the split, a step is no shorter.
struct ChainMean {
  /// Per chunk in model order: how often its forward, backward and weight gradients count.
  std::vector<std::array<double, 3>> times;
  std::vector<double> ends; ///< per stage: how often its work once per step counts
};

class RangeBounds {
public:
  /// Layers repeat least here.
  RangeBounds(const Problem &problem, const StageOptions &options, const ChunkPlayer &player);

  ChainMean chainOf(const Chain &chain) const;
  static ChainMean meanOf(std::span<const ChainMean> chains, std::span<const double> weights);

  /// Narrows what chunks may have to what lets each stage alone end by `seconds`. False when that leaves nothing;
  /// whether anything changed is told by changes().
  bool narrow(double seconds);
  int changes() const { return changed; }

  /// Layers that a chunk may have which starts at `first`, from fewest to most; none where most < fewest.
  std::pair<int, int> counts(int position, int first) const;
  int fewestOf(int position) const { return fewest[position]; }
  int chunks() const { return static_cast<int>(fewest.size()); }
  int layers() const { return static_cast<int>(before.size()) - 1; }

  /// Layers first .. first + count - 1 without their chunk's edges.
  ChunkSeconds least(int first, int count) const;

  /// What a chunk of these layers adds to its stage's work once per step.
  double leastStep(int position, int first, int count) const;

  /// What a chain takes on a chunk of these layers.
  double seconds(const ChainMean &chain, int position, int first, int count) const;

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

  /// How many numbers of layers are compared to fill a Rest.
  int64_t work() const;

  /// Layers of each chunk under which the chain is shortest.
  std::vector<int> shortest(const ChainMean &chain, const Rest &rest) const;

  /// Layers of each chunk so that the longest of them is as short as can be.
  std::vector<int> balanced() const;

private:
  int end(int position, int first, double most) const;

  const ChunkPlayer &player;
  bool splits;
  double microBatches;
  std::vector<ChunkSeconds> before; // [i]: layers before i
  std::vector<double> totals;       // of the same
  std::vector<double> steps;        // of the same, once per step
  std::vector<double> edgeSteps;    // of the embedding and the head
  std::vector<int> fewest, fewestBefore;
  std::vector<double> mostSeconds;   // of the layers of each chunk
  std::vector<int> earliest, latest; // where each chunk may start
  std::vector<double> otherSeconds;  // of a stage's other chunks, at least
  int changed = 0;
};

} // namespace espalier::planner
