// A block of a launch: its warps, barriers and shared memory.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "test/emulator/global_touches.h"
#include "test/emulator/ptx.h"
#include "test/emulator/warp.h"

namespace espalier::emulator {

/// The state that the blocks of a launch share.
struct Grid {
  const Entry &entry;
  const Launch &launch;
  const Memory &memory;
  std::vector<std::byte> parameters;
  GlobalTouches touches = {};
  uint32_t nonCoherentLine = 0;
  uint64_t instructions = 0;
};

/// A block's shared memory. It records the accesses of each warp since the last barrier. Two accesses to the same bytes
/// by different warps without a barrier between them are a race if one of them is a write.
class SharedMemory {
public:
  explicit SharedMemory(uint32_t bytes);

  /// Check an access. Return the error, or nullptr.
  const char *read(uint32_t at, uint32_t bytes, uint32_t warp, bool reportsUndefined);
  const char *write(uint32_t at, uint32_t bytes, uint32_t warp);
  /// Marks bytes as the target of an asynchronous copy. Reading them is an error until they are written.
  void expect(uint32_t at, uint32_t bytes);
  void passBarrier() { epoch += epochStep; }

  std::byte *data() { return bytes.data(); }
  uint32_t size() const { return static_cast<uint32_t>(bytes.size()); }

private:
  enum State : uint8_t { undefined, expected, defined };
  // Epochs are multiples of a number above all warps, so one comparison identifies accesses of the current epoch.
  static constexpr uint32_t epochStep = 256, severalWarps = 255;
  std::vector<std::byte> bytes;
  std::vector<uint8_t> states;
  // Epoch and warp of the last access, per two bytes. Accesses within two bytes are not distinguished.
  std::vector<uint32_t> writes, reads;
  uint32_t epoch = epochStep;
  bool expectsCopies = false; // whether expect() was ever called
};

/// A block that executes its warps.
class Block {
public:
  Block(Grid &grid, Dim index);
  void run();

  Grid &grid;
  const Dim index;
  const uint32_t number; // from 1, in the order of the grid
  SharedMemory shared;
  std::vector<std::byte> local; // per thread

private:
  std::vector<std::unique_ptr<Warp>> warps;
  [[noreturn]] void failAtBarrier(const std::vector<Warp::Stop> &stops) const;
};

} // namespace espalier::emulator
