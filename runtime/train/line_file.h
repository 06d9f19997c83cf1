// A file that grows by whole lines. The training is worth more than its lines: a disk that refuses one is told, and the
// run goes on without.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace espalier::rt {

class LineFile {
public:
  LineFile() = default;
  ~LineFile();
  LineFile(const LineFile &) = delete;
  LineFile &operator=(const LineFile &) = delete;

  /// Opens it behind what it holds, or anew. Throws PlanError if it cannot be written or is a pipe that nobody reads.
  void open(const std::filesystem::path &path, bool isContinued);

  /// Removes the lines at the end of the file for which `isDropped` is true, and returns how many. Ends the line before
  /// them if its end is missing. Leaves what is no regular file alone.
  int64_t dropLast(const std::function<bool(std::string_view)> &isDropped);

  /// Appends a line at once. The first one that cannot be written is told on standard error; it and those after it are
  /// missing.
  void add(std::string line);

  /// Why lines are missing, empty where none is.
  const std::string &fault() const { return theFault; }

private:
  bool write(const std::string &text);
  void refuse(int reason);

  std::filesystem::path path;
  int descriptor = -1;
  std::string theFault;
};

} // namespace espalier::rt
