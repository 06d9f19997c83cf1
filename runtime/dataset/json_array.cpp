#include "runtime/dataset/json_array.h"

#include "messages/data_error.h"

#include <fmt/format.h>

namespace espalier::rt {

namespace {

constexpr size_t longestElement = 1U << 30;
constexpr std::string_view byteOrderMark = "\xef\xbb\xbf", blanks = " \t\r\n";

std::string_view withoutMark(std::string_view line) {
  return line.starts_with(byteOrderMark) ? line.substr(byteOrderMark.size()) : line;
}

} // namespace

bool beginsJsonArray(std::string_view line) {
  line = withoutMark(line);
  size_t first = line.find_first_not_of(blanks);
  return first != std::string_view::npos && line[first] == '[';
}

JsonArrayReader::JsonArrayReader(std::string file, LineReader &reader, std::string_view line)
    : file(std::move(file)), reader(reader), line(withoutMark(line)) {}

/// Makes the next line current if this one is used up.
bool JsonArrayReader::fill() {
  if (at < line.size())
    return true;
  at = 0;
  do
    if (!reader.next(line))
      return false;
  while (line.empty());
  return true;
}

bool JsonArrayReader::next(std::string &element) {
  element.clear();
  int64_t last = reader.lineNumber();
  while (fill()) {
    // A line break within a text makes the element invalid, so it stays.
    if (int64_t now = reader.lineNumber(); now != last && !element.empty())
      element += '\n';
    last = reader.lineNumber();
    while (at < line.size())
      if (take(line[at++], element))
        return true;
    if (element.size() > longestElement)
      throw DataError(file, fmt::format("an element of more than {} bytes", longestElement), begin);
  }
  if (depth > 0)
    throw DataError(file, "the array has no end", last);
  return false;
}

/// Takes a character. Returns whether it ends an element.
bool JsonArrayReader::take(char c, std::string &element) {
  bool isBlank = blanks.find(c) != std::string_view::npos;
  if (depth == 0) {
    if (!isBlank && (c != '[' || hasBegun))
      throw DataError(file, "text follows the array, want one array or an object per line", reader.lineNumber());
    hasBegun |= !isBlank;
    depth = isBlank ? 0 : 1;
    return false;
  }
  if (!isString && depth == 1 && (c == ',' || c == ']')) {
    if (element.empty() && (c == ',' || isBehindComma))
      throw DataError(file, "an element of the array is empty", reader.lineNumber());
    isBehindComma = c == ',';
    depth = c == ',' ? 1 : 0;
    return !element.empty();
  }
  if (element.empty() && isBlank)
    return false;
  if (element.empty())
    begin = reader.lineNumber();
  element += c;
  if (isString) {
    isString = isEscaped || c != '"';
    isEscaped = !isEscaped && c == '\\';
  } else {
    isString = c == '"';
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
  }
  return false;
}

} // namespace espalier::rt
