// One memory instruction's access: from the addresses of lanes to host memory, checked.
#pragma once
#include "test/emulator/ptx_decode.h"
#include "test/emulator/warp.h"

namespace espalier::emulator {

class MemoryAccess {
public:
  /// Of so many bytes by each lane.
  MemoryAccess(Warp &warp, const Instruction &instruction, uint32_t bytes, bool reads, bool writes);
  bool isAtomic = false;

  /// The host memory behind each lane's address, which the operand holds.
  void find(uint32_t operand, uint32_t mask, std::byte *(&host)[warpLanes]);
  /// The address that a lane's operand holds, `offset` added.
  uint64_t addressOf(uint32_t operand, int64_t offset, uint32_t lane) const;
  void checkAlignment(uint64_t address, uint32_t lane) const;
  /// Host memory behind one lane's bytes, told to the launch as touched.
  std::byte *shared(uint64_t address, uint32_t lane);
  std::byte *global(uint64_t address, uint32_t lane);

private:
  /// Neighbouring bytes, or the same ones, of lanes that follow one another.
  struct Run {
    Range bytes;
    uint32_t lane; // the last
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

/// .global, .shared, .local or .param; generic without.
Space takeSpace(Decoder &decoder);

} // namespace espalier::emulator
