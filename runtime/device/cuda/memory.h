// What a rank takes of a device, once: the arena of its plan and a workspace for libraries. And pinned memory of the
// host through which all copies to and from it go.
#pragma once

#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/queue.h"

#include <array>
#include <vector>

namespace espalier::rt::cuda {

/// Zeroed device memory. Arena and workspace are one allocation, the workspace behind the arena.
class Memory {
public:
  /// Throws MemoryError with what is free and what is wanted; `queue` zeroes it.
  Memory(const Context &context, Queue &queue, uint64_t arenaBytes, uint64_t workspaceBytes);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  CUdeviceptr at(uint64_t offset) const { return base + offset; }
  CUdeviceptr workspace() const { return base + workspaceOffset; }
  /// Arena and workspace.
  uint64_t bytes() const { return size; }
  const uint64_t workspaceBytes;

private:
  const Driver &driver;
  uint64_t workspaceOffset, size;
  CUdeviceptr base = 0;
};

/// Zeroed pinned memory of the host, which copies of any queue can read and write while it computes.
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

/// Blocks of pinned host memory used in turn, so that the host fills one while another is on its way.
class Staging {
public:
  explicit Staging(const Driver &driver);
  ~Staging();
  Staging(const Staging &) = delete;
  Staging &operator=(const Staging &) = delete;

  /// Enqueues a copy to the device; `from` may be reused when it returns.
  void copyIn(Queue &queue, CUdeviceptr to, const void *from, size_t bytes);
  /// After all work of `queue` issued so far; done when it returns.
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
