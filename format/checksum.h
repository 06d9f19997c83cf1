// Checksums that detect damaged bytes: 64-bit XXH3. They detect accidental damage, not manipulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <span>
#include <string>
#include <xxhash.h>

namespace espalier::rt {

inline uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

/// Returns the checksum as 16 hexadecimal digits, because JSON numbers cannot hold 64 bits.
inline std::string checksumText(std::span<const std::byte> bytes) { return fmt::format("{:016x}", checksum(bytes)); }

/// Computes the same checksum incrementally.
class RunningChecksum {
public:
  RunningChecksum() : state(XXH3_createState()) { XXH3_64bits_reset(state.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state.get(), bytes.data(), bytes.size()); }
  std::string text() const { return fmt::format("{:016x}", XXH3_64bits_digest(state.get())); }

private:
  struct Free {
    void operator()(XXH3_state_t *state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state;
};

} // namespace espalier::rt
