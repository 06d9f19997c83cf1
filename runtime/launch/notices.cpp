#include "runtime/launch/notices.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <stdexcept>

namespace espalier::rt {

void Notices::post(std::string_view name, std::string_view text) {
  if (name.size() >= mostName || text.size() > mostText)
    throw std::runtime_error(fmt::format("a notice \"{}\" of {} bytes; {} at most", name, text.size(), mostText));
  uint32_t number = std::atomic_ref(count).fetch_add(1, std::memory_order_relaxed);
  if (number >= most)
    throw std::runtime_error(fmt::format("no room for notice \"{}\": there are {} already", name, most));
  Notice &notice = notices[number];
  std::ranges::copy(name, notice.name.begin());
  std::ranges::copy(text, notice.text.begin());
  notice.length = static_cast<uint32_t>(text.size());
  std::atomic_ref(notice.isThere).store(1, std::memory_order_release);
}

std::optional<std::string> Notices::find(std::string_view name) const {
  for (size_t i = 0; i < most; ++i)
    if (auto notice = at(i); !notice)
      return std::nullopt; // entries are found in order, so later ones become visible after this one
    else if (notice->first == name)
      return notice->second;
  return std::nullopt;
}

std::optional<std::pair<std::string, std::string>> Notices::at(size_t number) const {
  // A const object has no atomic references. The cast is safe because the flag is only read.
  auto *isThere = number < most ? const_cast<uint32_t *>(&notices[number].isThere) : nullptr;
  if (!isThere || std::atomic_ref(*isThere).load(std::memory_order_acquire) == 0)
    return std::nullopt;
  const Notice &notice = notices[number];
  return std::pair(std::string(notice.name.data()), std::string(notice.text.data(), notice.length));
}

} // namespace espalier::rt
