// The one allocation of a rank: every buffer of its program lies in it at an offset fixed by the
// compiler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::rt {

/// Zeroed memory, 64-byte aligned, touched by the thread that makes it.
class Arena {
public:
  /// Throws PlanError with the size where the system refuses it.
  explicit Arena(uint64_t bytes);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  std::byte *at(uint64_t offset) const { return base + offset; }
  uint64_t bytes() const { return size; }

private:
  std::byte *base = nullptr;
  uint64_t size;
};

} // namespace espalier::rt
