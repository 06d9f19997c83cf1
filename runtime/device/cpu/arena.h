// One allocation that holds buffers of a rank at offsets fixed by the compiler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::rt {

/// Zeroed memory, 64-byte aligned, first touched by the thread that constructs it.
class Arena {
public:
  /// Throws PlanError with the size if the system refuses the memory.
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
