// Memory is mapped, not allocated: the system zeroes pages on first touch and can back large ranges with huge pages.
#include "runtime/comm/process_memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <sys/mman.h>

namespace espalier::rt {
namespace {

constexpr size_t chunkBytes = 1 << 20, lineBytes = 64, hugePageBytes = 2 << 20;

} // namespace

ProcessMemory::~ProcessMemory() {
  for (std::span<std::byte> piece : mapped)
    munmap(piece.data(), piece.size());
}

void *ProcessMemory::take(size_t bytes) {
  std::lock_guard lock(mutex);
  if (bytes >= chunkBytes / 4)
    return map(bytes).data();
  bytes = (std::max<size_t>(bytes, 1) + lineBytes - 1) / lineBytes * lineBytes;
  if (left.size() < bytes)
    left = map(chunkBytes);
  void *piece = left.data();
  left = left.subspan(bytes);
  return piece;
}

std::span<std::byte> ProcessMemory::map(size_t bytes) {
  mapped.reserve(mapped.size() + 1); // so that recording the mapping cannot fail
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw MemoryError(fmt::format("the system refuses {} bytes that ranks share", bytes));
  if (bytes >= hugePageBytes)
    madvise(memory, bytes, MADV_HUGEPAGE);
  mapped.emplace_back(static_cast<std::byte *>(memory), bytes);
  return mapped.back();
}

} // namespace espalier::rt
