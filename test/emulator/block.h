// A block of a launch: its warps, its barriers and its shared memory.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "test/emulator/global_touches.h"
#include "test/emulator/ptx.h"
#include "test/emulator/warp.h"

namespace espalier::emulator {

/// What the blocks of a launch share.
struct Grid {
  const Entry &entry;
  const Launch &launch;
  const Memory &memory;
  std::vector<std::byte> parameters;
  GlobalTouches touches = {};
  uint32_t nonCoherentLine = 0;
  uint64_t instructions = 0;
};

/// A block's shared memory. Follows which warp touched which bytes since the last barrier: two warps that touch the
/// same bytes, one of them writing, with no barrier between them, race.
class SharedMemory {
public:
  explicit SharedMemory(uint32_t bytes);

  /// Each gives what is wrong with the access, nullptr where nothing is.
  const char *read(uint32_t at, uint32_t bytes, uint32_t warp, bool reportsUndefined);
  const char *write(uint32_t at, uint32_t bytes, uint32_t warp);
  /// From here on until it is written, nothing may read there: an asynchronous copy is on its way.
  void expect(uint32_t at, uint32_t bytes);
  void passBarrier() { epoch += epochStep; }

  std::byte *data() { return bytes.data(); }
  uint32_t size() const { return static_cast<uint32_t>(bytes.size()); }

private:
  enum State : uint8_t { undefined, expected, defined };
  // Epochs are counted above the number of a warp, so that a touch of now is told by one comparison.
  static constexpr uint32_t epochStep = 256, severalWarps = 255;
  std::vector<std::byte> bytes;
  std::vector<uint8_t> states;
  // Of two bytes: when and by which warp they were touched last. Different accesses are told apart no finer than that.
  std::vector<uint32_t> writes, reads;
  uint32_t epoch = epochStep;
  bool expectsCopies = false; // ever
};

class Block {
public:
  Block(Grid &grid, Dim index);
  void run();

  Grid &grid;
  const Dim index;
  const uint32_t number; // from 1, in the order of the grid
  SharedMemory shared;
  std::vector<std::byte> local; // of each thread

private:
  std::vector<std::unique_ptr<Warp>> warps;
  [[noreturn]] void failAtBarrier(const std::vector<Warp::Stop> &stops) const;
};

} // namespace espalier::emulator
