// Runs verbs of this command in a child process.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// The result of a child process.
struct ChildResult {
  int exitCode = 0;   ///< 128 + the signal that ended the process
  std::string output; ///< its standard output, if it was captured
};

/// Whether a child's standard output is captured or goes where this process writes. AllCaptured: also its standard
/// error, in the same text.
enum class ChildOutput { Captured, AllCaptured, Inherited };

/// Runs `espalier WORDS` and waits for its end. Standard error is else inherited. Throws std::runtime_error if the
/// process cannot be started.
ChildResult runOwnCommand(const std::vector<std::string> &words, ChildOutput output);

} // namespace espalier
