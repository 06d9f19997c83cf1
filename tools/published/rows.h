// Converts a row of a table of published runs to a problem and a plan.
#pragma once

#include "tools/published/shape_problem.h"
#include "tools/published/table.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// The planner input for one row. If the row cannot be priced, `reason` says why and the other fields are empty.
struct PublishedCase {
  std::string reason;
  Problem problem; ///< memory as a monitor shows it
  Problem needs;   ///< memory that the run needs in order not to fail
  Plan plan;
  double seconds = 0;     ///< measured, 0 when not published
  double gibibytes = 0;   ///< measured, 0 when not published
  double unseenBytes = 0; ///< predicted bytes that the published figure does not include
  bool outOfMemory = false;
  bool analytic = false;            ///< memory is the paper's formula: parameters, optimizer and activations of layers
  std::vector<std::string> assumed; ///< unpublished parts of the shape
  /// The row has model, devices and batch but no plan. `plan` is empty, and the pins describe the features of the
  /// system.
  bool withoutPlan = false;
  double nullFlops = 0; ///< FLOP per step and device with recompute; the null model divides it by its rate
};

/// Returns the case of a row. The gpu, precision, ZeRO and source columns select the system and the machine. The
/// tables are in systems.cpp and machines.cpp.
PublishedCase caseOf(const PublishedRow &row);

} // namespace espalier::planner
