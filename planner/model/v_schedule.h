// Tables of the V-shaped schedules, which have no closed form: greedy schedules of unit actions under a limit of
// memory, in the published order of preference (backward, forward, weight gradient). Source: Qi et al. 2024.
#pragma once

#include "planner/model/schedule.h"

namespace espalier::planner {

/// The actions of each stage under zero-bubble V, V-Half or V-Min.
std::vector<std::vector<Action>> buildVStages(Schedule schedule, int stages, int microBatches);

} // namespace espalier::planner
