// From pins to a plan: pinned plans as given, everything else by the planner's search.
#pragma once

#include "compiler/import/run_config.h"
#include "planner/plan.h"

namespace espalier {

/// The plan that `run.pins` states; unset fields take their defaults: one replica, no split, no recompute, 1F1B, layers
/// spread evenly. The import has checked that the pins fit the model and the cluster.
planner::Plan pinnedPlan(const RunConfig &run);

/// Spreads `layers` over `stages`; what does not divide goes to the stages in the middle first, because the first and
/// the last also hold the embedding and the head.
std::vector<int> spreadLayers(int layers, int stages);

} // namespace espalier
