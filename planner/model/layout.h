// A plan with the work and memory of its stages. The price sums a layout, and the trace draws it.
#pragma once

#include "planner/model/stage.h"

#include <vector>

namespace espalier::planner {

/// The costs of a plan, per chunk in model order and per stage.
struct Layout {
  CostTable table;
  ScheduleTable schedule;
  std::vector<StageContent> chunks;  ///< layers, and whether the chunk has the embedding and the head
  std::vector<ChunkSeconds> seconds; ///< of the chunks, with embedding, head and sends
  std::vector<PhaseSeconds> step;    ///< of the stages, work once per step
  std::vector<StageMemory> memory;
};

/// Computes the layout. Requires a plan with stages.
Layout layOut(const Problem &problem, const Plan &plan);

} // namespace espalier::planner
