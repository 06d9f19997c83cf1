// Reads tables of published training runs: CSV in one schema (columns model, layers, hidden, ..., gpu, n_gpus, tp, pp,
// ..., iter_time_s, mem_gb, status). The files come from outside, so that every format fault is reported with its
// line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// Returns the number of a cell. A unit of the column and a remark in brackets may follow: `128,256`, `850 ms`,
/// `3 (FSDP group 8)`. Returns nothing for other texts such as `~4`, `4/8` and `16M`.
std::optional<double> readNumber(const std::string &cell, const std::string &column = "");

/// Converts ASCII letters to lower case.
std::string lowerCase(std::string text);

/// One published run: its columns by name, empty if not published.
struct PublishedRow {
  int line = 0; ///< first line of the row, from 1
  std::map<std::string, std::string> columns;
  /// Returns the cell in the unit of its column, or `missing` if the cell is empty or not a number.
  double number(const std::string &column, double missing = 0) const;
  const std::string &text(const std::string &column) const;
  /// Returns the cell in lower case.
  std::string lower(const std::string &column) const { return lowerCase(text(column)); }
};

/// A format fault of a table, and its line.
struct TableFault {
  int line = 0;
  std::string message;
};

/// The rows of a table and its faults.
struct PublishedTable {
  std::vector<PublishedRow> rows;
  std::vector<TableFault> faults; ///< rows with a fault are not in `rows`
};

/// Parses CSV text. Quoted cells may contain commas, newlines and doubled quotes. Cells are trimmed, and column names
/// are lower-cased. Unknown columns are kept, and empty lines are skipped. Faults: no heading, a repeated column, no
/// `gpu` column, a row with a wrong number of cells, an unclosed quote.
PublishedTable readTable(const std::string &csv);

} // namespace espalier
