// Reads tables of published training runs (one CSV schema) and turns a row into a problem and a
// plan.
#pragma once

#include "planner/published.h"

#include <map>
#include <string>
#include <vector>

namespace espalier::planner {

/// One run as published; columns by name, empty when not published.
struct PublishedRow {
  int line = 0;
  std::map<std::string, std::string> columns;
  /// The column as a number; `missing` when it is empty or no number.
  double number(const std::string &column, double missing = 0) const;
  const std::string &text(const std::string &column) const;
};

/// Splits CSV text with quotes. Rows with another number of cells than the heading are reported in
/// `faults` (when given) and left out.
std::vector<PublishedRow> readRows(const std::string &csv,
                                   std::vector<std::string> *faults = nullptr);

/// A row that can be priced: what the planner would be asked. `reason` says why it cannot (then the
/// rest is empty).
struct PublishedCase {
  std::string reason;
  Problem problem;
  Plan plan;
  double seconds = 0;   ///< measured, 0 when not published
  double gibibytes = 0; ///< measured, 0 when not published
  bool outOfMemory = false;
  bool analytic =
      false; ///< memory is the paper's formula: parameters, optimizer and activations of layers
  double nullFlops =
      0; ///< of a step and device, recompute included: what the null model divides by its rate
};

/// The variant of system and machine that a row uses follows from its gpu, precision, ZeRO and
/// source columns; published_rows.cpp has the table.
PublishedCase caseOf(const PublishedRow &row);

/// The machine of a gpu column, with at most twelve constants; name empty when the gpu is not
/// known.
Machine publishedMachine(const std::string &gpu, const std::string &precision, int devices);

} // namespace espalier::planner
