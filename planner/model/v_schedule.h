// Builds tables of V-shaped schedules, which have no closed form. A greedy scheduler places unit actions under a
// memory limit, in the published order of preference (backward, forward, weight gradient). Source: Qi et al. 2024.
#pragma once

#include "planner/model/schedule.h"

namespace espalier::planner {

/// Returns the actions of each stage under zero-bubble V, V-Half or V-Min.
std::vector<std::vector<Action>> buildVStages(Schedule schedule, int stages, int microBatches);

} // namespace espalier::planner
