// Tables of published training runs as CSV in one schema (columns model, layers, hidden, ..., gpu, n_gpus, tp, pp, ...,
// iter_time_s, mem_gb, status). The text is foreign: every fault of its form is told with its line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier::planner {

/// What a cell counts or measures, which says what may follow its number.
enum class Unit {
  None,
  Positions, ///< `4K` is 4,096
  Seconds,   ///< s, ms, min
  Gibibytes, ///< GB and GiB are the same here, as tables do not part them; MB
  Rate       ///< %, TFLOP/s, tokens/s
};

/// The number of a cell, with at most its unit and a remark in brackets behind it: `128,256`, `850 ms`,
/// `3 (FSDP group 8)`. Nothing when the cell says anything else, as `~4`, `4/8` and `16M` do.
std::optional<double> readNumber(const std::string &cell, Unit unit = Unit::None);

/// One run as published; columns by name, empty when not published.
struct PublishedRow {
  int line = 0; ///< where the row begins, from 1
  std::map<std::string, std::string> columns;
  /// The cell in the unit of its column; `missing` when it is empty or no such number.
  double number(const std::string &column, double missing = 0) const;
  const std::string &text(const std::string &column) const;
};

/// ASCII letters to lower case.
std::string lowerCase(std::string text);

/// What is wrong with the form of a table, and where.
struct TableFault {
  int line = 0;
  std::string message;
};

struct PublishedTable {
  std::vector<PublishedRow> rows;
  std::vector<TableFault> faults; ///< rows with a fault are not in `rows`
};

/// Splits CSV text; cells in quotes may hold commas, lines and doubled quotes. Cells lose the spaces around them, names
/// of columns their capitals. Unknown columns are kept, empty lines are left out. Faults: no heading, a column twice,
/// no column `gpu`, a row with another number of cells than the heading, a quote that is never closed.
PublishedTable readTable(const std::string &csv);

} // namespace espalier::planner
