#include "runtime/device/cuda/memory.h"

#include <algorithm>
#include <cstring>

namespace espalier::rt::cuda {
namespace {

constexpr uint64_t workspaceAlignment = 256;

} // namespace

Memory::Memory(const Context &context, Queue &queue, uint64_t arenaBytes, uint64_t workspaceBytes)
    : workspaceBytes(workspaceBytes), driver(context.driver),
      workspaceOffset((arenaBytes + workspaceAlignment - 1) / workspaceAlignment * workspaceAlignment),
      size(workspaceOffset + workspaceBytes) {
  context.requireFree(arenaBytes, workspaceBytes);
  if (driver.cuMemAlloc_v2.answer(&base, size) == CUDA_ERROR_OUT_OF_MEMORY)
    context.lackMemory(arenaBytes, workspaceBytes);
  if (!base)
    driver.cuMemAlloc_v2(&base, size); // throws the error if it is not a lack of memory
  driver.cuMemsetD8Async(base, 0, size, queue.stream());
}

Memory::~Memory() { driver.cuMemFree_v2.answer(base); }

HostMemory::HostMemory(const Driver &driver, uint64_t bytes) : bytes(bytes), driver(driver) {
  if (bytes == 0)
    return;
  void *memory = nullptr;
  driver.cuMemHostAlloc(&memory, bytes, /*Flags=*/0);
  base = static_cast<std::byte *>(memory);
  std::memset(base, 0, bytes);
}

HostMemory::~HostMemory() {
  if (base)
    driver.cuMemFreeHost.answer(base);
}

Staging::Staging(const Driver &driver) : driver(driver) {
  void *memory = nullptr;
  driver.cuMemHostAlloc(&memory, blockCount * blockBytes, /*Flags=*/0);
  pinned = static_cast<std::byte *>(memory);
  for (size_t i = 0; i < blockCount; ++i)
    blocks.push_back({pinned + i * blockBytes, Event(driver)});
}

Staging::~Staging() {
  blocks.clear();
  driver.cuMemFreeHost.answer(pinned);
}

void Staging::copyIn(Queue &queue, CUdeviceptr to, const void *from, size_t bytes) {
  for (size_t done = 0; done < bytes; done += blockBytes) {
    size_t part = std::min(blockBytes, bytes - done);
    Block &block = next();
    block.isFree.wait(queue.watch);
    std::memcpy(block.memory, static_cast<const std::byte *>(from) + done, part);
    driver.cuMemcpyHtoDAsync_v2(to + done, block.memory, part, queue.stream());
    queue.record(block.isFree);
  }
}

// The host empties one block while the copies into the others are in flight.
void Staging::copyOut(Queue &queue, void *to, CUdeviceptr from, size_t bytes) {
  std::array<Block *, blockCount> flying = {};
  size_t parts = (bytes + blockBytes - 1) / blockBytes;
  auto bytesOf = [&](size_t part) { return std::min(blockBytes, bytes - part * blockBytes); };
  for (size_t part = 0; part < parts + blockCount - 1; ++part) {
    if (part < parts) {
      Block &block = next();
      block.isFree.wait(queue.watch);
      driver.cuMemcpyDtoHAsync_v2(block.memory, from + part * blockBytes, bytesOf(part), queue.stream());
      queue.record(block.isFree);
      flying[part % blockCount] = &block;
    }
    if (part + 1 < blockCount)
      continue;
    size_t oldest = part + 1 - blockCount;
    Block &block = *flying[oldest % blockCount];
    block.isFree.wait(queue.watch);
    std::memcpy(static_cast<std::byte *>(to) + oldest * blockBytes, block.memory, bytesOf(oldest));
  }
}

} // namespace espalier::rt::cuda
