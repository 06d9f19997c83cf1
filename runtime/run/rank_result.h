// The result that a child rank returns to its parent process.
#pragma once

#include "runtime/run/run.h"

#include <optional>
#include <string>

namespace espalier::rt {

/// A start-up error of a process, in a form that another process can throw.
struct StartupError {
  int status = 2;           ///< exit status of the command
  bool isElsewhere = false; ///< another process reports the error
  std::string text = "";
  std::string file = ""; ///< file of a DataError, whose line follows; the text is then the reason
  int64_t line = 0;

  /// Captures the exception that is being handled.
  static StartupError current();
  /// Throws the exception again.
  [[noreturn]] void raise() const;
};

/// The message from a child rank to its parent.
struct RankResult {
  RunResult run = {}; ///< without tensors
  std::string loadFault = "", metricsFault = "";
  std::optional<StartupError> startupError = {};
};

/// An unnamed file that carries the message. Create it before the processes are forked.
class ResultFile {
public:
  /// Creates the file. Throws MemoryError.
  ResultFile();
  ~ResultFile();
  ResultFile(const ResultFile &) = delete;
  ResultFile &operator=(const ResultFile &) = delete;

  /// Writes the message. Throws std::runtime_error if the system call fails.
  void write(const RankResult &result) const;
  /// Reads the message. Returns nothing if no complete message was written.
  std::optional<RankResult> read() const;

private:
  int file;
};

} // namespace espalier::rt
