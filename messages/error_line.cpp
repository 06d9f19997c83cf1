#include "messages/error_line.h"

#include <charconv>
#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

/// Removes the number behind the last colon of `place` and returns it; returns 0 if there is none.
int takeNumber(std::string_view &place) {
  size_t colon = place.rfind(':');
  int number = 0;
  if (colon == std::string_view::npos)
    return 0;
  const char *begin = place.data() + colon + 1, *end = place.data() + place.size();
  auto [last, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || last != end || number <= 0)
    return 0;
  place = place.substr(0, colon);
  return number;
}

std::string hintOf(const std::string &message) {
  size_t at = message.find("; ");
  if (at != std::string::npos)
    return message.substr(at + 2);
  at = message.find(", did you mean ");
  return at == std::string::npos ? "" : message.substr(at + 2);
}

} // namespace

ErrorFormat &errorFormat() {
  static ErrorFormat format = ErrorFormat::Text;
  return format;
}

ErrorLine parseErrorLine(std::string_view text) {
  while (text.ends_with('\n'))
    text.remove_suffix(1);
  for (std::string severity : {"error", "warning"}) {
    std::string mark = ": " + severity + ": ";
    size_t at = text.find(mark);
    if (at == std::string_view::npos)
      continue;
    std::string_view place = text.substr(0, at);
    int last = takeNumber(place), first = takeNumber(place);
    bool isCommand = place == "espalier" || place.starts_with("espalier ");
    return {isCommand ? "" : std::string(place), first > 0 ? first : last, first > 0 ? last : 0, severity,
            std::string(text.substr(at + mark.size()))};
  }
  return {.message = std::string(text)};
}

std::string jsonOf(const ErrorLine &error) {
  nlohmann::ordered_json line = {{"file", error.file},       {"line", error.line},
                                 {"column", error.column},   {"severity", error.severity},
                                 {"message", error.message}, {"hint", hintOf(error.message)}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void printError(std::string_view place, std::string_view message) {
  printErrorText(fmt::format("{}: error: {}", place, message));
}

void printErrorText(std::string_view text) {
  std::string line = errorFormat() == ErrorFormat::Json ? jsonOf(parseErrorLine(text)) : std::string(text);
  if (!line.ends_with('\n'))
    line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

} // namespace espalier
