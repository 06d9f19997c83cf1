// The name of this host in messages.
#pragma once

#include <array>
#include <string>
#include <unistd.h>

namespace espalier::rt {

/// Returns the name of this host, or an empty string if the system has none.
inline std::string hostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

} // namespace espalier::rt
