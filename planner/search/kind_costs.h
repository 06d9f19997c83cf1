// Costs of segments under many choices of axes, of which most differ from the one before only in ZeRO, or in stages and
// replicas: what runs and is kept per micro-batch is then the same, where the terms say so, and only the rest is summed
// again.
#pragma once

#include "planner/model/cost.h"

#include <compare>
#include <optional>
#include <vector>

namespace espalier::planner {

/// Whether a size is the same for any number of stages and, with as many samples on each, of replicas.
bool isLocalSize(const Size &size);

class KindCosts {
public:
  /// `problem` must outlive this.
  explicit KindCosts(const Problem &problem);

  /// The choice that was priced last and its cost.
  struct Last {
    std::optional<Plan> plan;
    int group = -1;
    bool found = false;
    SegmentCost cost;
  };

  /// An order in which most choices are near the one before.
  static std::strong_ordering compare(const Plan &a, const Plan &b);

  /// Makes `last`, which is of the same kind or empty, what segmentCost() says of `plan`, but for
  /// rounding.
  void price(int kind, const Plan &plan, Last &last) const;

private:
  const Problem &problem;
  Problem once;                         ///< the kinds with their parameters and what runs once per step
  std::vector<std::vector<int>> groups; ///< [kind][pattern]: the first pattern that differs in nothing else
  /// [kind][pattern]: its micro-batches are the same however many stages and replicas there are.
  std::vector<std::vector<bool>> isLocal;
};

} // namespace espalier::planner
