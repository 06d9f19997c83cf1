// The only exception of this folder. Every error in a file, token or option is a DataError that names the file and the
// reason.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::rt {

/// A data file or data option that cannot be used. `what()` is `FILE: error: REASON`, or `FILE:LINE: error: REASON` if
/// the line is known (lines count from 1).
class DataError : public std::runtime_error {
public:
  DataError(const std::string &file, const std::string &reason, int64_t line = 0)
      : std::runtime_error(file + (line > 0 ? ":" + std::to_string(line) : "") + ": error: " + reason), fileName(file),
        reasonText(reason), lineNumber(line) {}

  /// Returns the name of the file.
  const std::string &file() const { return fileName; }
  /// Returns the reason, without the file.
  const std::string &reason() const { return reasonText; }
  /// Returns the line, or 0 if the error has none.
  int64_t line() const { return lineNumber; }

private:
  std::string fileName;
  std::string reasonText;
  int64_t lineNumber;
};

} // namespace espalier::rt
