// A file that grows by whole lines. A disk that refuses the first one stops the run, as nothing is lost yet; later the
// training is worth more than its lines, and goes on without.
#pragma once

#include <filesystem>
#include <string>
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

  /// Appends a line at once. Throws PlanError where it is the first one and cannot be written; a later one is told on
  /// standard error and missing.
  void add(std::string line);

  /// Why lines are missing, empty where none is.
  const std::string &fault() const { return theFault; }

private:
  bool write(const std::string &text);

  std::filesystem::path path;
  int descriptor = -1;
  bool hasLine = false;
  std::string theFault;
};

} // namespace espalier::rt
