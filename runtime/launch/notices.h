// Small texts by name that one rank or launcher posts and all others of its host can read, in the memory that they
// share; launchers carry them to the other hosts. So go NCCL's ids and the address of the control channel.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace espalier::rt {

/// A list that only grows. Zeroed memory is an empty one.
class Notices {
public:
  static constexpr size_t most = 256, mostName = 64, mostText = 4096;

  /// Throws std::runtime_error where the list is full or the text too long. A name is posted once.
  void post(std::string_view name, std::string_view text);

  std::optional<std::string> find(std::string_view name) const;

  /// Name and text of notice `number`, counted in the order of posts; none before it is there.
  std::optional<std::pair<std::string, std::string>> at(size_t number) const;

private:
  struct Notice {
    uint32_t isThere, length;
    std::array<char, mostName> name;
    std::array<char, mostText> text;
  };
  uint32_t count;
  std::array<Notice, most> notices;
};

} // namespace espalier::rt
