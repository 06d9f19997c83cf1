// Builds plans from pins: a pinned plan as given. All other plans come from the planner's search.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/plan.h"

namespace espalier {

/// Returns the plan that `run.pins` specifies. Unset fields use their defaults: one replica, no split, no
/// recomputation, 1F1B, layers distributed evenly. The import has already checked that the pins fit the model and the
/// cluster.
planner::Plan pinnedPlan(const RunConfig &run);

/// Distributes `layers` over `stages`. The remainder goes to the middle stages first, because the first and the last
/// stage also hold the embedding and the head.
std::vector<int> spreadLayers(int layers, int stages);

} // namespace espalier
