// Where a text ends: stop strings may begin in one token and end in another, so what could still become one is held
// back. The joined pieces are the whole text before the first stop string, whatever pieces it came in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

class StopFilter {
public:
  explicit StopFilter(std::vector<std::string> stops);

  /// The text that is sure to come before any stop string. Nothing behind the first one.
  std::string push(std::string_view text);
  /// What was held back, once no more text comes.
  std::string finish();
  /// Whether a stop string has come.
  bool isStopped() const { return stopped; }

private:
  std::vector<std::string> stops;
  std::string held;
  bool stopped = false;
};

/// Length of the longest beginning of `text` that is whole UTF-8: what is behind it may be the first bytes of a
/// character. Bytes that begin no character count as whole.
size_t wholeCharacters(std::string_view text);

} // namespace espalier::rt
