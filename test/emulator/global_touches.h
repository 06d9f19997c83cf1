// The global memory accesses of a launch. Blocks run in any order on a device, so bytes that one block writes and
// another block accesses are a race.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "test/emulator/memory.h"

namespace espalier::emulator {

class GlobalTouches {
public:
  /// The bytes of a race, and the other block.
  struct Conflict {
    uint64_t address;
    uint32_t block;
    bool isWrite; // whether the other block wrote
  };
  /// Record an access. Return the first conflict with another block. Blocks are numbered from 1; atomics use 0 and
  /// conflict with no block.
  std::optional<Conflict> read(Range bytes, uint32_t block, bool isNonCoherent);
  std::optional<Conflict> write(Range bytes, uint32_t block);

  Ranges reads() const { return readBytes.ranges(); }
  Ranges writes() const { return writtenBytes.ranges(); }
  /// Returns bytes that were read by non-coherent loads and also written.
  Range wronglyNonCoherent() const { return firstCommon(nonCoherentBytes.ranges(), writtenBytes.ranges()); }

private:
  // The accessing blocks per two bytes. Accesses within two bytes are not distinguished.
  static constexpr uint64_t pageBytes = 4096, granuleBytes = 2;
  static constexpr uint32_t severalBlocks = ~0u;
  struct Owners {
    std::array<uint32_t, pageBytes / granuleBytes> writers = {}, readers = {};
  };
  std::unordered_map<uint64_t, std::unique_ptr<Owners>> pages;
  uint64_t lastNumber = ~uint64_t(0);
  Owners *last = nullptr;
  ByteSet readBytes, writtenBytes, nonCoherentBytes;

  Owners &page(uint64_t number);
  /// Calls visit(owners, index) for each granule of the bytes until it returns a conflict.
  template <class F> std::optional<Conflict> forGranules(Range bytes, F visit);
};

} // namespace espalier::emulator
