// Turns a row of a table of published runs into a problem and a plan.
#pragma once

#include "tools/published/shape_problem.h"
#include "tools/published/table.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// A row that can be priced: what the planner would be asked. `reason` says why it cannot (then the
/// rest is empty).
struct PublishedCase {
  std::string reason;
  Problem problem; ///< bytes as a monitor shows them
  Problem needs;   ///< bytes without which the run fails
  Plan plan;
  double seconds = 0;     ///< measured, 0 when not published
  double gibibytes = 0;   ///< measured, 0 when not published
  double unseenBytes = 0; ///< of the prediction, that the published figure does not count
  bool outOfMemory = false;
  bool analytic = false;            ///< memory is the paper's formula: parameters, optimizer and activations of layers
  std::vector<std::string> assumed; ///< of the shape, where it is not published
  /// Model, devices and batch are published and nothing of the plan; `plan` is empty, the pins say what the system had.
  bool withoutPlan = false;
  double nullFlops = 0; ///< of a step and device, recompute included: what the null model divides by its rate
};

/// The variant of system and machine that a row uses follows from its gpu, precision, ZeRO and
/// source columns; systems.cpp and machines.cpp have the tables.
PublishedCase caseOf(const PublishedRow &row);

} // namespace espalier::planner
