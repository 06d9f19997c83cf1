// Parses the text to records of cells in one pass, and the records to rows in another.
#include "tools/published/table.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <set>

namespace espalier {

std::string lowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

namespace {

std::string trimmed(const std::string &text) {
  constexpr const char *blanks = " \t";
  size_t first = text.find_first_not_of(blanks);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

// Removes commas between groups of three digits (`2,097,152`) from the integer part. Returns false if they are
// elsewhere.
bool dropSeparators(std::string &number) {
  size_t end = std::min(number.find_first_not_of("0123456789,"), number.size()), first = number.find(',');
  if (first == std::string::npos || first >= end)
    return number.find(',') == std::string::npos;
  for (size_t place = first; place < end; place += 4)
    if (number[place] != ',' || end - place < 4)
      return false;
  std::erase(number, ',');
  return first > 0 && number.size() - (number.size() - first) <= 3;
}

using Factors = std::map<std::string, double>; // by unit

// The units that may follow the numbers of a column. GB means GiB, because tables do not distinguish them.
const Factors &unitsOf(const std::string &column) {
  static const Factors none,
      rate = {{"%", 1},          {"tflops", 1},   {"tflop/s", 1}, {"tflops/s", 1},     {"tflop/s/gpu", 1},
              {"tflops/gpu", 1}, {"tokens/s", 1}, {"tok/s", 1},   {"tokens/s/gpu", 1}, {"tok/s/gpu", 1}};
  static const std::map<std::string, Factors> units = {
      {"seq", {{"k", 1024}}},
      {"iter_time_s", {{"s", 1}, {"sec", 1}, {"seconds", 1}, {"ms", 1e-3}, {"min", 60}}},
      {"mem_gb", {{"g", 1}, {"gb", 1}, {"gib", 1}, {"mb", 1 / 1024.}, {"mib", 1 / 1024.}}},
      {"tflops_per_gpu", rate},
      {"mfu_pct", rate},
      {"hfu_pct", rate},
      {"tokens_per_s_per_gpu", rate}};
  auto found = units.find(column);
  return found == units.end() ? none : found->second;
}

} // namespace

std::optional<double> readNumber(const std::string &cell, const std::string &column) {
  std::string text = lowerCase(trimmed(cell));
  if (size_t remark = text.find('('); remark != std::string::npos && text.ends_with(')'))
    text = trimmed(text.substr(0, remark));
  size_t digits = std::min(text.find_first_not_of("+-.,0123456789e"), text.size());
  std::string number = trimmed(text.substr(0, digits));
  if (number.empty() || !dropSeparators(number))
    return std::nullopt;
  char *end = nullptr;
  double value = std::strtod(number.c_str(), &end);
  std::string unit = trimmed(text.substr(digits));
  const Factors &units = unitsOf(column);
  if (*end != '\0' || !std::isfinite(value) || !(unit.empty() || units.contains(unit)))
    return std::nullopt;
  return value * (unit.empty() ? 1 : units.at(unit));
}

const std::string &PublishedRow::text(const std::string &column) const {
  static const std::string empty;
  auto place = columns.find(column);
  return place == columns.end() ? empty : place->second;
}

double PublishedRow::number(const std::string &column, double missing) const {
  return readNumber(text(column), column).value_or(missing);
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
  int line = 1, quoteLine = 0; // quoteLine > 0: inside quotes that opened on this line
  for (size_t i = csv.starts_with(byteOrderMark) ? byteOrderMark.size() : 0; i < csv.size(); ++i) {
    char c = csv[i];
    bool endsLine = c == '\n' || (c == '\r' && (i + 1 == csv.size() || csv[i + 1] != '\n'));
    line += endsLine;
    if (quoteLine && c == '"' && i + 1 < csv.size() && csv[i + 1] == '"')
      records.back().cells.back() += csv[++i];
    else if (c == '"')
      quoteLine = quoteLine ? 0 : line;
    else if (!quoteLine && c == ',')
      records.back().cells.emplace_back();
    else if (!quoteLine && endsLine)
      records.push_back({line, {""}});
    else if (c != '\r')
      records.back().cells.back() += c;
  }
  if (quoteLine) {
    faults.push_back({quoteLine, "a quote is opened here and never closed"});
    records.pop_back(); // the unclosed quote swallowed the rest
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
  static const std::set<std::string> nothing = {"-", "\u2013", "\u2014", "n/a", "na", "?"};
  for (Record &record : records)
    for (std::string &cell : record.cells)
      if (cell = trimmed(cell); nothing.contains(lowerCase(cell)))
        cell.clear();
  for (std::string &name : records.front().cells)
    name = lowerCase(name);
  const Record &heading = records.front();
  checkHeading(heading, table.faults);
  if (!table.faults.empty() && table.faults.back().line == heading.line)
    return table; // not such a table, or an ambiguous one: ignore its rows
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

} // namespace espalier
