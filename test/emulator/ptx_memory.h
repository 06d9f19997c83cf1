// The access of one memory instruction: translates and checks the addresses of its lanes.
#pragma once
#include "test/emulator/ptx_decode.h"
#include "test/emulator/warp.h"

namespace espalier::emulator {

class MemoryAccess {
public:
  /// Each lane accesses `bytes` bytes.
  MemoryAccess(Warp &warp, const Instruction &instruction, uint32_t bytes, bool reads, bool writes);
  bool isAtomic = false;

  /// Writes the host memory of each active lane's address to `host`. The operand holds the addresses.
  void find(uint32_t operand, uint32_t mask, std::byte *(&host)[warpLanes]);
  /// Returns a lane's address: the operand plus `offset`.
  uint64_t addressOf(uint32_t operand, int64_t offset, uint32_t lane) const;
  void checkAlignment(uint64_t address, uint32_t lane) const;
  /// Returns the host memory of one lane's bytes and records the access.
  std::byte *shared(uint64_t address, uint32_t lane);
  std::byte *global(uint64_t address, uint32_t lane);

private:
  /// A run of equal or consecutive bytes of consecutive lanes.
  struct Run {
    Range bytes;
    uint32_t lane; // last lane
  };
  Warp &warp;
  const Instruction &instruction;
  const uint32_t bytes;
  const bool reads, writes;

  std::byte *shared(const Run &run);
  std::byte *global(const Run &run);
  std::byte *local(uint64_t address, uint32_t lane);
  std::byte *parameter(uint64_t address, uint32_t lane);
  std::byte *inSpace(Space space, uint64_t address, uint32_t lane);
  bool isInside(const Run &run) const;
  void findRuns(const uint64_t *addresses, uint32_t mask, std::byte **host);
};

/// .global, .shared, .local or .param; generic if missing.
Space takeSpace(Decoder &decoder);

} // namespace espalier::emulator
