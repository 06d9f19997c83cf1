// The board of threads lies in memory of their process, in pages that are mapped as they are needed.
#include "runtime/comm/local.h"

#include <algorithm>
#include <fmt/format.h>
#include <mutex>
#include <sys/mman.h>

namespace espalier::rt {
namespace {

constexpr size_t chunkBytes = 1 << 20, lineBytes = 64, hugePageBytes = 2 << 20;

/// Small pieces are cut from chunks; large ones are mapped by themselves.
class ProcessMemory final : public SharedMemory {
public:
  ~ProcessMemory() override {
    for (std::span<std::byte> piece : mapped)
      munmap(piece.data(), piece.size());
  }

  void *take(size_t bytes) override {
    std::lock_guard lock(mutex);
    bytes = (std::max<size_t>(bytes, 1) + lineBytes - 1) / lineBytes * lineBytes;
    if (bytes >= chunkBytes / 4)
      return map(bytes).data();
    if (left.size() < bytes)
      left = map(chunkBytes);
    void *piece = left.data();
    left = left.subspan(bytes);
    return piece;
  }

private:
  std::span<std::byte> map(size_t bytes) {
    mapped.reserve(mapped.size() + 1);
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw MemoryError(fmt::format("the system refuses {} bytes that ranks share", bytes));
    if (bytes >= hugePageBytes)
      madvise(memory, bytes, MADV_HUGEPAGE);
    mapped.emplace_back(static_cast<std::byte *>(memory), bytes);
    return mapped.back();
  }

  std::mutex mutex; ///< taken while loading only, and where a post needs more room than ever before
  std::vector<std::span<std::byte>> mapped;
  std::span<std::byte> left; ///< of the last chunk
};

} // namespace

LocalWorld::LocalWorld(int ranks) : World(ranks, std::make_unique<ProcessMemory>(), /*isOneProcess=*/true) {}

} // namespace espalier::rt
