// Memory is mapped, not allocated: the system zeroes pages on first touch and can back them with huge pages.
#include "runtime/device/cpu/arena.h"

#include "runtime/status.h"

#include <fmt/format.h>
#include <sys/mman.h>

namespace espalier::rt {
namespace {

constexpr uint64_t pageBytes = 4096;

} // namespace

Arena::Arena(uint64_t bytes) : size((bytes + pageBytes - 1) / pageBytes * pageBytes) {
  if (size == 0)
    return;
  void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw PlanError(fmt::format("the system refuses an arena of {} bytes for one rank", bytes));
  madvise(memory, size, MADV_HUGEPAGE);
  base = static_cast<std::byte *>(memory);
  for (uint64_t page = 0; page < size; page += pageBytes)
    base[page] = std::byte{0};
}

Arena::~Arena() {
  if (base)
    munmap(base, size);
}

} // namespace espalier::rt
