// The global memory of the emulated device: allocations at device addresses, backed by host memory, and sets of
// accessed bytes.
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
/// Sorted ranges without overlap or contact.
using Ranges = std::vector<Range>;

/// Returns the first range that lies in both, empty if there is none.
Range firstCommon(const Ranges &a, const Ranges &b);

/// The memory that a kernel may access. Addresses are never reused, so that use of a freed address is an error.
class Memory {
public:
  /// Maps host memory for kernels and returns its device address, a multiple of 256.
  uint64_t add(void *host, uint64_t bytes, std::string name = "");
  /// Frees the allocation that begins at the address. Returns whether one did.
  bool remove(uint64_t address);
  /// Returns the host memory of the bytes, or nullptr unless all of them lie in one allocation.
  std::byte *find(uint64_t address, uint64_t bytes) const;
  /// Describes the address by the nearest allocation at or before it: "3 bytes behind x (4000 bytes)".
  std::string describe(uint64_t address) const;

private:
  struct Allocation {
    uint64_t bytes;
    std::byte *host;
    std::string name;
  };
  std::map<uint64_t, Allocation> allocations; // keyed by address
  uint64_t next = uint64_t(1) << 44;
  mutable uint64_t lastBegin = 0, lastEnd = 0; // the last allocation found
  mutable std::byte *lastHost = nullptr;
};

/// A set of bytes, built by marking ranges.
class ByteSet {
public:
  void mark(uint64_t begin, uint64_t end);
  bool contains(uint64_t address) const;
  Ranges ranges() const;

private:
  static constexpr uint64_t pageBytes = 4096;
  using Page = std::array<uint64_t, pageBytes / 64>; // one bit per byte
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages;
  uint64_t lastNumber = ~uint64_t(0);
  Page *last = nullptr;
};

} // namespace espalier::emulator
