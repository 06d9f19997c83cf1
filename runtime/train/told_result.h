// What the first of the ranks that a process started leaves for it.
#pragma once

#include "runtime/train/run.h"

#include <optional>
#include <string>

namespace espalier::rt {

/// Why a process did not begin: an exception as it can be told to another process.
struct Refusal {
  int status = 2;           ///< with which the command ends
  bool isElsewhere = false; ///< another process says why
  std::string text = "";
  std::string file = ""; ///< of a DataError, with its line: then the text is the reason
  int64_t line = 0;

  /// Of the exception at hand.
  static Refusal current();
  [[noreturn]] void raise() const;
};

struct ToldResult {
  RunResult result = {}; ///< without tensors
  std::string loadFault = "", metricsFault = "";
  std::optional<Refusal> refusal = {};
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
