// The collectives of one step, summed by mesh axis.
#pragma once

#include "planner/price.h"

#include <vector>

namespace espalier::planner {

/// The collectives of one axis in one step, on one rank: the mean over the stages.
struct AxisTraffic {
  Axis axis = Axis::Tp;
  double bytes = 0;   ///< sizes of the whole buffers
  double seconds = 0; ///< duration of the transfers, hidden or not
  double exposed = 0; ///< seconds that stall compute
};

/// Returns the axes with traffic, in the order dp, tp, cp, ep, pp. `priced` holds the exposed seconds. Activations
/// between stages and tied embeddings count for pp.
std::vector<AxisTraffic> axisTraffic(const Problem &problem, const PricedPlan &priced);

} // namespace espalier::planner
