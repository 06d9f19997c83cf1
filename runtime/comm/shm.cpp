// One memory file without a name: nothing is left behind in /dev/shm however the processes end, and the size of that
// file system, often small in containers, is no limit.
#include "runtime/comm/shm.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr size_t lineBytes = 64, pageBytes = 4096;

/// Addresses kept for the board: groups, lines and posts take some 100 KB per rank, mostly untouched.
size_t boardBytes(int ranks) { return (size_t{64} + ranks) << 20; }

/// A mapping from which pieces are cut. How much is cut lies in it too, as every process cuts.
class FileMemory final : public SharedMemory {
public:
  explicit FileMemory(size_t bytes) : size(bytes) {
    int file = memfd_create("espalier", MFD_CLOEXEC);
    bool isSized = file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0;
    void *memory = MAP_FAILED;
    if (isSized)
      memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    int error = errno;
    if (file >= 0)
      close(file); // the mapping keeps it
    if (memory == MAP_FAILED)
      throw MemoryError(
          fmt::format("the system refuses {} bytes that processes share: {}", size, std::strerror(error)));
    madvise(memory, size, MADV_HUGEPAGE);
    base = static_cast<std::byte *>(memory);
    cut = new (base) std::atomic<size_t>(lineBytes);
  }
  ~FileMemory() override { munmap(base, size); }

  /// Pieces of a page or more begin at pages, for the system to back them with large ones.
  void *take(size_t bytes) override {
    size_t unit = bytes >= pageBytes ? pageBytes : lineBytes;
    size_t begin, end, seen = cut->load(std::memory_order_relaxed);
    do {
      begin = (seen + unit - 1) / unit * unit;
      if (bytes > size || begin > size - bytes)
        throw MemoryError(fmt::format("the ranks share {} bytes, of which {} are left; {} are needed", size,
                                      size - std::min(begin, size), bytes));
      end = (begin + std::max<size_t>(bytes, 1) + lineBytes - 1) / lineBytes * lineBytes;
    } while (!cut->compare_exchange_weak(seen, end, std::memory_order_relaxed));
    return base + begin;
  }

private:
  size_t size;
  std::byte *base;
  std::atomic<size_t> *cut;
};

size_t withBoard(int ranks, size_t bytes) {
  size_t all = boardBytes(ranks) + bytes;
  constexpr size_t most = size_t{1} << 46; // half of what a process can address
  if (all < bytes || all > most)
    throw MemoryError(fmt::format("the ranks would share {} bytes, a process can address {}", bytes, most));
  return (all + pageBytes - 1) / pageBytes * pageBytes;
}

} // namespace

ShmWorld::ShmWorld(int ranks, size_t bytes, int first)
    : World(ranks, std::make_unique<FileMemory>(withBoard(ranks, bytes)), /*isOneProcess=*/false), first(first) {}

} // namespace espalier::rt
