#include "planner/answer/format.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace espalier::planner {

std::string format(const char *pattern, ...) {
  va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  std::string text(static_cast<size_t>(std::vsnprintf(nullptr, 0, pattern, arguments)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string wrapped(const std::string &line, size_t indent) {
  constexpr size_t columns = 100;
  std::string text, rest = line;
  auto isContinuation = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }; // takes no column
  for (;;) {
    size_t bytes = columns + static_cast<size_t>(std::ranges::count_if(rest, isContinuation));
    size_t end = rest.size() > bytes ? rest.find_last_of(",;", bytes - 1) : std::string::npos;
    if (end == std::string::npos || end <= indent)
      break;
    text += rest.substr(0, end + 1) + "\n";
    rest = std::string(indent, ' ') + rest.substr(rest.find_first_not_of(' ', end + 1));
  }
  return text + rest + "\n";
}

} // namespace espalier::planner
