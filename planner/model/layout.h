// A plan laid out on stages: what is played and summed to its price, and drawn in its trace.
#pragma once

#include "planner/model/stage.h"

#include <vector>

namespace espalier::planner {

/// Per chunk in model order, and per stage.
struct Layout {
  CostTable table;
  ScheduleTable schedule;
  std::vector<StageContent> chunks;  ///< layers alone
  std::vector<ChunkSeconds> seconds; ///< of the chunks, with what they take beside their layers
  std::vector<PhaseSeconds> step;    ///< of the stages, once per step
  std::vector<StageMemory> memory;
};

/// Requires a plan with stages.
Layout layOut(const Problem &problem, const Plan &plan);

} // namespace espalier::planner
