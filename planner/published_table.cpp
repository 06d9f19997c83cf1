// One pass over the text to records of cells, one over the records to rows.
#include "planner/published_table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

namespace espalier::planner {

const std::string &PublishedRow::text(const std::string &column) const {
  static const std::string empty;
  auto place = columns.find(column);
  return place == columns.end() ? empty : place->second;
}

double PublishedRow::number(const std::string &column, double missing) const {
  const std::string &cell = text(column);
  char *end = nullptr;
  double value = std::strtod(cell.c_str(), &end);
  return end == cell.c_str() || !std::isfinite(value) ? missing : value;
}

namespace {

struct Record {
  int line = 1;
  std::vector<std::string> cells{""};
  bool isEmpty() const { return cells.size() == 1 && cells[0].empty(); }
};

std::vector<Record> splitRecords(const std::string &csv, std::vector<TableFault> &faults) {
  static const std::string byteOrderMark = "\xEF\xBB\xBF";
  std::vector<Record> records(1);
  int line = 1, quoteLine = 0; // quoteLine > 0: inside quotes that began there
  for (size_t i = csv.starts_with(byteOrderMark) ? byteOrderMark.size() : 0; i < csv.size(); ++i) {
    char c = csv[i];
    line += c == '\n';
    if (quoteLine && c == '"' && i + 1 < csv.size() && csv[i + 1] == '"')
      records.back().cells.back() += csv[++i];
    else if (c == '"')
      quoteLine = quoteLine ? 0 : line;
    else if (!quoteLine && c == ',')
      records.back().cells.emplace_back();
    else if (!quoteLine && c == '\n')
      records.push_back({line, {""}});
    else if (c != '\r')
      records.back().cells.back() += c;
  }
  if (quoteLine) {
    faults.push_back({quoteLine, "a quote is opened here and never closed"});
    records.pop_back(); // it swallowed the rest
  }
  return records;
}

void checkHeading(const Record &heading, std::vector<TableFault> &faults) {
  std::set<std::string> seen;
  for (const std::string &name : heading.cells)
    if (!name.empty() && !seen.insert(name).second)
      faults.push_back({heading.line, "column '" + name + "' is there twice"});
  if (!seen.contains("gpu"))
    faults.push_back({heading.line, "no column 'gpu': not a table of published runs (the first line names columns "
                                    "such as model, layers, hidden, gpu, n_gpus, tp, pp)"});
}

} // namespace

PublishedTable readTable(const std::string &csv) {
  PublishedTable table;
  std::vector<Record> records = splitRecords(csv, table.faults);
  if (records.empty() || records.front().isEmpty()) {
    table.faults.insert(table.faults.begin(), {1, "no heading: the first line has to name the columns"});
    return table;
  }
  const Record &heading = records.front();
  checkHeading(heading, table.faults);
  if (!std::ranges::count(heading.cells, "gpu"))
    return table; // some other file: its rows have nothing to tell
  for (size_t i = 1; i < records.size(); ++i) {
    const Record &record = records[i];
    if (record.isEmpty())
      continue;
    if (record.cells.size() != heading.cells.size()) {
      table.faults.push_back({record.line, "the row has " + std::to_string(record.cells.size()) +
                                               " cells, the heading has " + std::to_string(heading.cells.size())});
      continue;
    }
    PublishedRow &row = table.rows.emplace_back();
    row.line = record.line;
    for (size_t cell = 0; cell < record.cells.size(); ++cell)
      row.columns[heading.cells[cell]] = record.cells[cell];
  }
  return table;
}

} // namespace espalier::planner
