// Costs of segments under many choices of axes, of which most differ from the one before only in ZeRO: what runs and is
// kept per micro-batch is then the same, where the terms say so, and only the rest is summed again.
#pragma once

#include "planner/cost.h"

#include <optional>
#include <vector>

namespace espalier::planner {

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

  /// Makes `last`, which is of the same kind or empty, what segmentCost() says of `plan`.
  void price(int kind, const Plan &plan, Last &last) const;

private:
  const Problem &problem;
  Problem once;                         ///< the kinds with their parameters and what runs once per step
  std::vector<std::vector<int>> groups; ///< [kind][pattern]: the first pattern that differs in nothing else
};

} // namespace espalier::planner
