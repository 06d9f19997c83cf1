// 32 lanes that execute a kernel: registers, program counters, and waiting lanes.
#pragma once
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "test/emulator/ptx.h"

namespace espalier::emulator {

class Block;

class Warp {
public:
  Warp(Block &block, const Entry &entry, uint32_t index, uint32_t threads);

  enum class Stop : uint8_t { exited, barrier };
  /// Executes until all lanes have exited or wait at a barrier. Diverged lanes with the lowest instruction run first,
  /// so that lanes reconverge where their paths join.
  Stop run();
  /// The barrier at which run() stopped, and its number of threads (0: all of the block).
  uint32_t barrierId = 0, barrierThreads = 0;
  const Instruction &barrierInstruction() const { return *stoppedAt; }

  Block &block;
  const Entry &entry;
  const uint32_t index;             // within the block
  const uint32_t started;           // lanes that have a thread
  uint32_t live;                    // lanes that have not exited
  uint32_t program[warpLanes] = {}; // index of each lane's next instruction
  uint64_t executed = 0;

  /// Returns the 32 values of a slot with sizeof(T) bytes per lane.
  template <class T> T *lanes(Slot slot) { return reinterpret_cast<T *>(file.data() + slot.offset); }
  uint32_t &predicate(Slot slot) { return *lanes<uint32_t>(slot); }
  /// Returns one lane's bits in a slot of any width.
  uint64_t bits(Slot slot, uint32_t lane) {
    const std::byte *at = file.data() + slot.offset + lane * slot.bytes;
    return slot.bytes == 4   ? *reinterpret_cast<const uint32_t *>(at)
           : slot.bytes == 8 ? *reinterpret_cast<const uint64_t *>(at)
                             : *reinterpret_cast<const uint16_t *>(at);
  }
  void setBits(Slot slot, uint32_t lane, uint64_t value) {
    std::byte *at = file.data() + slot.offset + lane * slot.bytes;
    if (slot.bytes == 4)
      *reinterpret_cast<uint32_t *>(at) = static_cast<uint32_t>(value);
    else if (slot.bytes == 8)
      *reinterpret_cast<uint64_t *>(at) = value;
    else
      *reinterpret_cast<uint16_t *>(at) = static_cast<uint16_t>(value);
  }

  [[noreturn]] void fail(Fault::Check check, const Instruction &instruction, uint32_t lane,
                         const std::string &what) const;

  /// Copies of cp.async that a lane has started and not yet waited for, by group, and its open group.
  struct Copy {
    const std::byte *from;
    uint32_t to, bytes, filled; // the bytes after `filled` become zero
  };
  std::vector<std::vector<Copy>> committed[warpLanes];
  std::vector<Copy> open[warpLanes];

private:
  std::vector<std::byte> file;
  std::vector<uint32_t> defined; // per slot, by offset / 4: defined lanes; empty unless undefined reads are reported
  const Instruction *stoppedAt = nullptr;
  uint32_t waiting = 0; // lanes waiting for reconvergence

  void fillConstants();
  uint32_t special(const Fill &fill, uint32_t lane) const;
  uint32_t nextGroup(uint32_t &at);
  uint32_t guarded(const Instruction &instruction, uint32_t mask);
  bool isConverged(const Instruction &instruction, uint32_t mask);
  uint32_t branch(const Instruction &instruction, uint32_t at, uint32_t holding, uint32_t &mask);
  void stopAtBarrier(const Instruction &instruction, uint32_t mask);
  void checkDefined(const Instruction &instruction, uint32_t mask);
};

/// Calls f with each lane of the mask.
template <class F> inline void forLanes(uint32_t mask, F f) {
  if (mask == ~0u)
    for (uint32_t lane = 0; lane < warpLanes; ++lane)
      f(lane);
  else
    for (; mask; mask &= mask - 1)
      f(static_cast<uint32_t>(__builtin_ctz(mask)));
}

/// Writes results, one per lane, to the lanes of the mask. Results are first computed for all lanes, outside of the
/// register file, so that the compiler can vectorize the computation.
template <class T> inline void store(Warp &warp, Slot slot, const T (&results)[warpLanes], uint32_t mask) {
  T *to = warp.lanes<T>(slot);
  if (mask == ~0u)
    std::memcpy(to, results, sizeof results);
  else
    forLanes(mask, [&](uint32_t lane) { to[lane] = results[lane]; });
}

inline void storePredicate(Warp &warp, Slot slot, uint32_t result, uint32_t mask) {
  uint32_t &to = warp.predicate(slot);
  to = (to & ~mask) | (result & mask);
}

} // namespace espalier::emulator
