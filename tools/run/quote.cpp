#include "tools/run/quote.h"

namespace espalier {

std::string quote(std::span<const std::string> words) {
  constexpr const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+@%";
  std::string line;
  for (std::string word : words) {
    bool isPlain = !word.empty() && word.find_first_not_of(plain) == std::string::npos;
    for (size_t at = 0; !isPlain && (at = word.find('\'', at)) != std::string::npos; at += 4)
      word.replace(at, 1, "'\\''");
    line += (line.empty() ? "" : " ") + (isPlain ? word : "'" + word + "'");
  }
  return line;
}

} // namespace espalier
