#include "runtime/launch/key_value_store.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <stdexcept>

namespace espalier::rt {

void KeyValueStore::post(std::string_view name, std::string_view text) {
  if (name.size() >= mostName || text.size() > mostText)
    throw std::runtime_error(fmt::format("an entry \"{}\" of {} bytes; {} at most", name, text.size(), mostText));
  uint32_t number = std::atomic_ref(count).fetch_add(1, std::memory_order_relaxed);
  if (number >= most)
    throw std::runtime_error(fmt::format("no room for entry \"{}\": there are {} already", name, most));
  Entry &entry = entries[number];
  std::ranges::copy(name, entry.name.begin());
  std::ranges::copy(text, entry.text.begin());
  entry.length = static_cast<uint32_t>(text.size());
  std::atomic_ref(entry.isThere).store(1, std::memory_order_release);
}

std::optional<std::string> KeyValueStore::find(std::string_view name) const {
  for (size_t i = 0; i < most; ++i)
    if (auto entry = at(i); !entry)
      return std::nullopt; // entries are found in order, so later ones become visible after this one
    else if (entry->first == name)
      return entry->second;
  return std::nullopt;
}

std::optional<std::pair<std::string, std::string>> KeyValueStore::at(size_t number) const {
  // A const object has no atomic references. The cast is safe because the flag is only read.
  auto *isThere = number < most ? const_cast<uint32_t *>(&entries[number].isThere) : nullptr;
  if (!isThere || std::atomic_ref(*isThere).load(std::memory_order_acquire) == 0)
    return std::nullopt;
  const Entry &entry = entries[number];
  return std::pair(std::string(entry.name.data()), std::string(entry.text.data(), entry.length));
}

} // namespace espalier::rt
