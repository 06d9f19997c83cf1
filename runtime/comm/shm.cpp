// The memory is an unnamed memory file. Nothing stays in /dev/shm when processes end, and the size of that file system,
// often small in containers, is no limit.
#include "runtime/comm/shm.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

constexpr size_t lineBytes = 64, pageBytes = 4096;

/// Address space reserved for the segment: groups, channels and posts take about 100 KB per rank, mostly untouched.
size_t segmentBytes(int ranks) { return (size_t{64} + ranks) << 20; }

/// The address at which separately started processes map the shared memory. It lies far from programs, libraries and
/// heaps. With ThreadSanitizer, it lies in the address range that the sanitizer leaves to programs.
#if defined(__has_feature) && __has_feature(thread_sanitizer)
constexpr uintptr_t agreedAddress = 0x7e9000000000;
#else
constexpr uintptr_t agreedAddress = uintptr_t{1} << 45;
#endif

[[noreturn]] void refuse(size_t bytes, const char *why) {
  throw MemoryError(fmt::format("the system refuses {} bytes that processes share: {}", bytes, why));
}

size_t withBoard(int ranks, size_t bytes) {
  size_t all = segmentBytes(ranks) + bytes;
  constexpr size_t most = size_t{1} << 46; // half of a process's address space
  if (all < bytes || all > most)
    throw MemoryError(fmt::format("the ranks would share {} bytes, a process can address {}", bytes, most));
  return (all + pageBytes - 1) / pageBytes * pageBytes;
}

int makeFile(size_t bytes) {
  int file = memfd_create("espalier", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0)
    return file;
  int error = errno;
  if (file >= 0)
    close(file);
  refuse(bytes, std::strerror(error));
}

size_t sizeOf(int file) {
  struct stat status{};
  return fstat(file, &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
}

} // namespace

/// A mapping from which allocations are cut. The offset of the next allocation lies in the mapping, because every
/// process allocates.
class ShmWorld::FileMemory final : public SharedMemory {
public:
  /// Takes ownership of `ownFile`. `address` fixes the address; 0 lets the system choose.
  FileMemory(int ownFile, uintptr_t address) : size(sizeOf(ownFile)), handle(ownFile) {
    int flags = MAP_SHARED | MAP_NORESERVE | (address ? MAP_FIXED_NOREPLACE : 0);
    void *wanted = reinterpret_cast<void *>(address);
    void *memory = mmap(wanted, size, PROT_READ | PROT_WRITE, flags, handle, 0);
    int error = errno;
    if (memory == MAP_FAILED || (address && memory != wanted)) {
      close(handle);
      refuse(size, memory == MAP_FAILED ? std::strerror(error) : "this kernel does not map memory at a given address");
    }
    madvise(memory, size, MADV_HUGEPAGE);
    base = static_cast<std::byte *>(memory);
    head = std::launder(static_cast<Head *>(memory));
  }
  ~FileMemory() override {
    munmap(base, size);
    close(handle);
  }

  /// Initializes a new file.
  void begin() { head = new (base) Head; }

  int file() const { return handle; }
  SharedSegment *&segment() { return head->segment; }

  /// Allocations of a page or more are page-aligned, so that the system can back them with huge pages.
  void *take(size_t bytes) override {
    size_t unit = bytes >= pageBytes ? pageBytes : lineBytes;
    size_t begin, end, seen = head->cut.load(std::memory_order_relaxed);
    do {
      begin = (seen + unit - 1) / unit * unit;
      if (bytes > size || begin > size - bytes)
        throw MemoryError(fmt::format("the ranks share {} bytes, of which {} are left; {} are needed", size,
                                      size - std::min(begin, size), bytes));
      end = (begin + std::max<size_t>(bytes, 1) + lineBytes - 1) / lineBytes * lineBytes;
    } while (!head->cut.compare_exchange_weak(seen, end, std::memory_order_relaxed));
    return base + begin;
  }

private:
  struct Head {
    std::atomic<size_t> cut{lineBytes};
    SharedSegment *segment = nullptr;
  };

  size_t size;
  int handle;
  std::byte *base;
  Head *head;
};

ShmWorld::ShmWorld(int ranks, std::unique_ptr<FileMemory> memory)
    : World(ranks, (memory->begin(), std::move(memory)), /*isOneProcess=*/false) {}

ShmWorld::ShmWorld(std::unique_ptr<FileMemory> memory) : World(std::move(memory), /*segment=*/nullptr) {
  segment = static_cast<FileMemory &>(*this->memory).segment();
}

ShmWorld::ShmWorld(int ranks, size_t bytes, int firstOfRun)
    : ShmWorld(ranks, std::make_unique<FileMemory>(makeFile(withBoard(ranks, bytes)), /*address=*/0)) {
  first = firstOfRun;
}

std::unique_ptr<ShmWorld> ShmWorld::openForOthers(int ranks, size_t bytes) {
  auto memory = std::make_unique<FileMemory>(makeFile(withBoard(ranks, bytes)), agreedAddress);
  std::unique_ptr<ShmWorld> world(new ShmWorld(ranks, std::move(memory)));
  static_cast<FileMemory &>(*world->memory).segment() = world->segment;
  return world;
}

std::unique_ptr<ShmWorld> ShmWorld::join(int file) {
  return std::unique_ptr<ShmWorld>(new ShmWorld(std::make_unique<FileMemory>(file, agreedAddress)));
}

int ShmWorld::file() const { return static_cast<FileMemory &>(*memory).file(); }

} // namespace espalier::rt
