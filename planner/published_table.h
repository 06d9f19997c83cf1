// Tables of published training runs as CSV in one schema (columns model, layers, hidden, ..., gpu, n_gpus, tp, pp, ...,
// iter_time_s, mem_gb, status). The text is foreign: every fault of its form is told with its line.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace espalier::planner {

/// One run as published; columns by name, empty when not published.
struct PublishedRow {
  int line = 0; ///< where the row begins, from 1
  std::map<std::string, std::string> columns;
  /// The number that the cell begins with; `missing` when it begins with none or with one that is not finite.
  double number(const std::string &column, double missing = 0) const;
  const std::string &text(const std::string &column) const;
};

/// What is wrong with the form of a table, and where.
struct TableFault {
  int line = 0;
  std::string message;
};

struct PublishedTable {
  std::vector<PublishedRow> rows;
  std::vector<TableFault> faults; ///< rows with a fault are not in `rows`
};

/// Splits CSV text; cells in quotes may hold commas, lines and doubled quotes. Unknown columns are kept, empty lines
/// are left out. Faults: no heading, a column twice, no column `gpu`, a row with another number of cells than the
/// heading, a quote that is never closed.
PublishedTable readTable(const std::string &csv);

} // namespace espalier::planner
