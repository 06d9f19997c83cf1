// Detects stop strings, which may span several tokens. Text that may begin a stop string is held back. The concatenated
// output is the text before the first stop string, independent of how the input was cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// A filter that cuts a text at its first stop string.
class StopFilter {
public:
  explicit StopFilter(std::vector<std::string> stops);

  /// Adds text. Returns the text that surely precedes any stop string, and nothing after the first stop string.
  std::string push(std::string_view text);
  /// Returns the held-back text at the end of the input.
  std::string finish();
  /// Returns whether a stop string was found.
  bool isStopped() const { return stopped; }

private:
  std::vector<std::string> stops;
  std::string held;
  bool stopped = false;
};

/// Returns the length of the longest prefix of `text` that consists of complete UTF-8 characters. Bytes that cannot
/// begin a character count as complete.
size_t wholeCharacters(std::string_view text);

} // namespace espalier::rt
