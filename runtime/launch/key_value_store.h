// A key-value store in memory that the ranks and launchers of a host share. Launchers copy the entries to other hosts.
// NCCL's ids and the address of the control channel use this store.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace espalier::rt {

/// An append-only list of key-value entries. Zeroed memory is an empty list.
class KeyValueStore {
public:
  static constexpr size_t most = 256, mostName = 64, mostText = 4096;

  /// Adds an entry. A key may be posted once. Throws std::runtime_error if the list is full or the text is too long.
  void post(std::string_view name, std::string_view text);

  /// Returns the text of a key, or nothing if the key was not posted.
  std::optional<std::string> find(std::string_view name) const;

  /// Returns key and text of entry `number` in the order of posts, or nothing if the entry does not exist yet.
  std::optional<std::pair<std::string, std::string>> at(size_t number) const;

private:
  struct Entry {
    uint32_t isThere, length;
    std::array<char, mostName> name;
    std::array<char, mostText> text;
  };
  uint32_t count;
  std::array<Entry, most> entries;
};

} // namespace espalier::rt
