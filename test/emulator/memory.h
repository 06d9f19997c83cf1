// The global memory of the emulated device: allocations at addresses of its own, backed by host memory, and sets of
// bytes that were touched.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace espalier::emulator {

/// Bytes [begin, end) of the device's address space.
struct Range {
  uint64_t begin, end;
  bool operator==(const Range &) const = default;
};
/// Sorted, apart from one another.
using Ranges = std::vector<Range>;

/// The first range that lies in both, empty where there is none.
Range firstCommon(const Ranges &a, const Ranges &b);

/// Which memory a kernel may touch. Addresses given out are never used again, so that a stale one is an error.
class Memory {
public:
  /// Makes host memory visible to kernels and gives its device address, a multiple of 256.
  uint64_t add(void *host, uint64_t bytes, std::string name = "");
  /// Whether an allocation began there; it is gone then.
  bool remove(uint64_t address);
  /// Host memory behind the bytes; nullptr unless all of them lie in one allocation.
  std::byte *find(uint64_t address, uint64_t bytes) const;
  /// What lies at the address or nearest before it, in words: "3 bytes behind x (4000 bytes)".
  std::string describe(uint64_t address) const;

private:
  struct Allocation {
    uint64_t bytes;
    std::byte *host;
    std::string name;
  };
  std::map<uint64_t, Allocation> allocations; // by address
  uint64_t next = uint64_t(1) << 44;
  mutable uint64_t lastBegin = 0, lastEnd = 0; // the allocation found last
  mutable std::byte *lastHost = nullptr;
};

/// A set of bytes, built by marking runs.
class ByteSet {
public:
  void mark(uint64_t begin, uint64_t end);
  bool contains(uint64_t address) const;
  Ranges ranges() const;

private:
  static constexpr uint64_t pageBytes = 4096;
  using Page = std::array<uint64_t, pageBytes / 64>; // a bit per byte
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages;
  uint64_t lastNumber = ~uint64_t(0);
  Page *last = nullptr;
};

} // namespace espalier::emulator
