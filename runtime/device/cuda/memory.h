// The memory of a rank: device memory for the plan's arena and the library workspace, and pinned host memory for
// copies.
#pragma once

#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/queue.h"

#include <array>
#include <vector>

namespace espalier::rt::cuda {

/// Zeroed device memory. One allocation holds the arena followed by the workspace.
class Memory {
public:
  /// Throws MemoryError with free and needed bytes. `queue` zeroes the memory.
  Memory(const Context &context, Queue &queue, uint64_t arenaBytes, uint64_t workspaceBytes);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  CUdeviceptr at(uint64_t offset) const { return base + offset; }
  CUdeviceptr workspace() const { return base + workspaceOffset; }
  /// Returns the size of arena and workspace.
  uint64_t bytes() const { return size; }
  const uint64_t workspaceBytes;

private:
  const Driver &driver;
  uint64_t workspaceOffset, size;
  CUdeviceptr base = 0;
};

/// Zeroed pinned host memory, which copies of any queue can access while the device computes.
class HostMemory {
public:
  HostMemory(const Driver &driver, uint64_t bytes);
  ~HostMemory();
  HostMemory(const HostMemory &) = delete;
  HostMemory &operator=(const HostMemory &) = delete;

  std::byte *at(uint64_t offset) const { return base + offset; }
  const uint64_t bytes;

private:
  const Driver &driver;
  std::byte *base = nullptr;
};

/// A ring of pinned host blocks, so that the host fills one block while another is in flight.
class Staging {
public:
  explicit Staging(const Driver &driver);
  ~Staging();
  Staging(const Staging &) = delete;
  Staging &operator=(const Staging &) = delete;

  /// Enqueues a copy to the device. `from` may be reused when this returns.
  void copyIn(Queue &queue, CUdeviceptr to, const void *from, size_t bytes);
  /// Copies to the host after all work issued so far on `queue`. The copy is complete when this returns.
  void copyOut(Queue &queue, void *to, CUdeviceptr from, size_t bytes);

private:
  static constexpr size_t blockBytes = 1 << 20, blockCount = 16;
  struct Block {
    std::byte *memory;
    Event isFree;
  };
  Block &next() { return blocks[turn++ % blockCount]; }

  const Driver &driver;
  std::byte *pinned = nullptr;
  std::vector<Block> blocks;
  size_t turn = 0;
};

} // namespace espalier::rt::cuda
