// An append-only file of complete lines. A training run is worth more than its lines, so a write error prints a warning
// and the run continues.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace espalier::rt {

/// Appends lines to one file and keeps the file free of partial lines.
class LineFile {
public:
  LineFile() = default;
  ~LineFile();
  LineFile(const LineFile &) = delete;
  LineFile &operator=(const LineFile &) = delete;

  /// Opens the file, for appending if `isContinued` is set. Else the first line replaces the content, so that a run
  /// that writes no line keeps it. Throws PlanError if the file cannot be written or is a pipe without a reader.
  void open(const std::filesystem::path &path, bool isContinued);

  /// Removes the last lines of the file while `isDropped` is true for them, and returns their number. Completes the
  /// line before them if its line break is missing. Does nothing if the file is not a regular file.
  int64_t dropLast(const std::function<bool(std::string_view)> &isDropped);

  /// Appends a line immediately. Prints the first write error to standard error; the line that failed and all later
  /// lines are missing.
  void add(std::string line);

  /// Returns why lines are missing, or an empty string.
  const std::string &fault() const { return theFault; }

private:
  bool write(const std::string &text);
  void refuse(int reason);

  std::filesystem::path path;
  int descriptor = -1;
  bool isOld = false; ///< the content is that of another run
  std::string theFault;
};

} // namespace espalier::rt
