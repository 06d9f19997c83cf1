// What the first of the ranks that a process started leaves for it.
#pragma once

#include "runtime/train/run.h"

#include <optional>
#include <string>

namespace espalier::rt {

struct ToldResult {
  RunResult result; ///< without tensors
  std::string loadFault, metricsFault;
};

/// A file without a name, made before the processes are forked.
class ResultFile {
public:
  /// Throws MemoryError.
  ResultFile();
  ~ResultFile();
  ResultFile(const ResultFile &) = delete;
  ResultFile &operator=(const ResultFile &) = delete;

  /// Throws std::runtime_error where the system refuses.
  void write(const ToldResult &told) const;
  /// None where nothing whole was written.
  std::optional<ToldResult> read() const;

private:
  int file;
};

} // namespace espalier::rt
