// Layers of many kinds under choices of axes that differ in stages, replicas and ZeRO alone: what one micro-batch takes
// and keeps of each kind is priced once for all of them, and bounds how memory and time can be traded.
#pragma once

#include "planner/search/bounds.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier::planner {

/// The terms of one micro-batch and the parameters, without collectives over replicas and stages.
class MicroBatchTerms {
public:
  explicit MicroBatchTerms(const Problem &problem);

  /// Equal for plans whose micro-batches have the same terms and sizes.
  std::vector<int64_t> keyOf(const Plan &plan) const;

  /// Whether collectives were left out of what runs under a plan.
  bool isWhole(const Plan &plan) const;

  const Problem &problem() const { return reduced; }

private:
  struct Kinds {            ///< that have the same patterns
    int first = 0;          ///< one of them
    std::vector<int> group; ///< by pattern: the first one that has the same terms
    std::vector<bool> isLocal, isWhole;
    bool operator==(const Kinds &other) const {
      return group == other.group && isLocal == other.isLocal && isWhole == other.isWhole;
    }
  };
  int patternOf(const Kinds &kinds, const Plan &plan) const;

  Problem reduced;
  std::vector<Kinds> unlike;
};

/// Stages that hold so many micro-batches of whatever lies on them, at least.
struct HeldStages {
  double held = 1;
  int stages = 0;
};

/// The stages of a pipeline by what they hold, most first: few groups, each with the least of its stages. Of several
/// chunks each is held so often at one moment, or in the mean of some, so that it does not matter on which of them a
/// layer lies. V-Half and V-Min have no closed form: where their tables are very large, one is said.
std::vector<HeldStages> leastHeldOf(const Plan &axes);

/// What all layers take of one micro-batch, what they keep of it, and how repeated work saves memory.
class LayerTrades {
public:
  /// `table` has the costs under `plan` of `problem`, the micro-batch terms.
  LayerTrades(const Problem &problem, const Plan &plan, const CostTable &table);

  /// As sumWork(), without what runs once per step and the state; `isWhole` as MicroBatchTerms says.
  const WorkSum &work() const { return sum; }

  /// A bound for all splits over stages that hold so much, whichever layers lie together; `whole` is the work of the
  /// choice. Each stage has its time T and its room M, so that for any weights u_s of time and v_s of bytes the sum
  /// over layers of the least of u_s (time) + v_s (bytes), over stages and classes of recompute, is at most T sum(u_s)
  /// + M sum(v_s). 0 where all may fit with nothing repeated.
  double bound(const WorkSum &whole, const Machine &machine, const Plan &axes,
               std::span<const HeldStages> stages) const;

private:
  static constexpr int kPrices = 16;
  struct Weights {
    double time = 0, kept = 0, state = 0; ///< of seconds; of bytes of one micro-batch; of bytes of state
  };

  void addKind(const SegmentCost &cost, const std::optional<Recompute> &pinned);
  void tabulate();
  std::array<double, 3> stateShares(const Plan &axes) const;
  double leastSum(double microBatches, const Plan &axes, std::span<const Weights> weights) const;

  WorkSum sum;
  std::vector<double> counts, seconds;                ///< per kind; with the least that may be repeated
  std::array<std::vector<double>, 3> repeated, saved; ///< per class: beyond that; bytes
  std::array<std::vector<double>, 3> state;           ///< parameters, gradients, optimizer: bytes before ZeRO
  std::array<double, kPrices> prices{}, traded{};     ///< seconds for a byte; the least of repeated + price * saved
};

} // namespace espalier::planner
