// Reads a file that is one JSON array, element by element, in memory of one element.
#pragma once

#include "runtime/dataset/line_reader.h"

#include <string>
#include <string_view>

namespace espalier::rt {

/// Returns whether a line of a file begins a JSON array.
bool beginsJsonArray(std::string_view line);

/// Cuts an array at the commas between its elements. The elements are not validated.
class JsonArrayReader {
public:
  /// `line` is the line of `reader` that begins the array. `file` is the name in errors.
  JsonArrayReader(std::string file, LineReader &reader, std::string_view line);

  /// Reads the next element. Returns false behind the array. Throws DataError if the array has no end, an element is
  /// empty or above 1 GiB, or text follows the array.
  bool next(std::string &element);
  /// Returns the number of the line in which the last element began.
  int64_t lineNumber() const { return begin; }

private:
  bool fill();
  bool take(char c, std::string &element);

  const std::string file;
  LineReader &reader;
  std::string_view line;
  size_t at = 0;
  int64_t depth = 0, begin = 0; ///< depth: open brackets, with that of the array
  bool isString = false, isEscaped = false, hasBegun = false, isBehindComma = false;
};

} // namespace espalier::rt
