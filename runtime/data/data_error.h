// The one exception of this room: whatever a file, a token or an option does wrong reaches the
// caller as a DataError that names the file and the reason. Nothing else is thrown for bad input.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::rt {

/// A data file or data option that cannot be used. `what()` reads `FILE: error: REASON`, or
/// `FILE:LINE: error: REASON` when a line is known (lines count from 1).
class DataError : public std::runtime_error {
public:
  DataError(const std::string &file, const std::string &reason, int64_t line = 0)
      : std::runtime_error(file + (line > 0 ? ":" + std::to_string(line) : "") + ": error: " + reason), fileName(file),
        reasonText(reason), lineNumber(line) {}

  const std::string &file() const { return fileName; }
  const std::string &reason() const { return reasonText; }
  /// 0 when the fault has no line.
  int64_t line() const { return lineNumber; }

private:
  std::string fileName;
  std::string reasonText;
  int64_t lineNumber;
};

} // namespace espalier::rt
