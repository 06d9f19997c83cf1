#include "runtime/generate/stop.h"

#include <algorithm>
#include <utility>

namespace espalier::rt {

StopFilter::StopFilter(std::vector<std::string> given) : stops(std::move(given)) {
  std::erase(stops, ""); // the empty string would match every text
}

std::string StopFilter::push(std::string_view text) {
  if (stopped)
    return "";
  held += text;
  size_t first = std::string::npos;
  for (const std::string &stop : stops)
    first = std::min(first, held.find(stop));
  if (first != std::string::npos) {
    stopped = true;
    return std::exchange(held, "").substr(0, first);
  }
  size_t kept = 0; // length of the longest suffix that begins a stop string
  for (const std::string &stop : stops)
    for (size_t length = std::min(held.size(), stop.size() - 1); length > kept; --length)
      if (std::string_view(held).ends_with(std::string_view(stop).substr(0, length)))
        kept = length;
  std::string sure = held.substr(0, held.size() - kept);
  held.erase(0, sure.size());
  return sure;
}

std::string StopFilter::finish() { return std::exchange(held, ""); }

size_t wholeCharacters(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    auto byte = static_cast<unsigned char>(text[text.size() - back]);
    size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (length > back)
      return text.size() - back;
    if ((byte & 0xc0) != 0x80) // a complete character, or invalid UTF-8
      return text.size();
  }
  return text.size();
}

} // namespace espalier::rt
