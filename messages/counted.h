// Numbers of things in sentences.
#pragma once

#include <cstdint>
#include <string>

namespace espalier::rt {

/// "1 rank", "8 ranks".
inline std::string counted(int64_t number, const std::string &noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

} // namespace espalier::rt
