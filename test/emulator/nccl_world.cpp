#include "test/emulator/nccl_world.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace espalier::emulator {
namespace {

/// A rank's send buffer. Memory is reserved only, until it is used.
constexpr uint64_t roomBytes = uint64_t(256) << 20;

[[noreturn]] void refuse(const std::string &what, const std::string &path) {
  throw std::runtime_error(what + " " + path + ": " + std::strerror(errno));
}

} // namespace

struct World::Header {
  std::atomic<uint32_t> joined, groupCount;
  std::atomic<uint32_t> lock; // for findGroup and claimDevice
  CUuuid devices[maxMembers]; // of the ranks that have joined
  Group groups[maxGroups];
};

namespace {

/// Holds a lock in shared memory.
class Held {
public:
  explicit Held(std::atomic<uint32_t> &lock) : lock(lock) {
    while (lock.exchange(1, std::memory_order_acquire))
      std::this_thread::yield();
  }
  ~Held() { lock.store(0, std::memory_order_release); }

private:
  std::atomic<uint32_t> &lock;
};

} // namespace

// A file of zeros is a valid world without members.
std::string World::create() {
  const char *folder = std::getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : "/tmp") + "/espalier_nccl_XXXXXX";
  int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0)
    refuse("cannot make", path);
  bool isSized = ftruncate(file, static_cast<off_t>(sizeof(Header) + maxMembers * roomBytes)) == 0;
  close(file);
  if (!isSized)
    refuse("cannot size", path);
  return path;
}

World::World(const std::string &path, int ranks, int rank) : ranks(ranks), rank(rank) {
  int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0)
    refuse("cannot open", path);
  void *memory =
      mmap(nullptr, sizeof(Header) + ranks * roomBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (memory == MAP_FAILED)
    refuse("cannot map", path);
  base = static_cast<std::byte *>(memory);
  header().groups[0].size = ranks;
  if (header().joined.fetch_add(1) + 1 == static_cast<uint32_t>(ranks))
    unlink(path.c_str());
}

World::~World() { munmap(base, sizeof(Header) + ranks * roomBytes); }

World::Header &World::header() const { return *reinterpret_cast<Header *>(base); }
Group &World::group(uint32_t index) const { return header().groups[index]; }
bool World::isComplete() const { return header().joined.load() >= static_cast<uint32_t>(ranks); }

uint32_t World::findGroup(uint32_t parent, uint32_t split, int color, int size) {
  Held held(header().lock);
  uint32_t count = header().groupCount.load();
  for (uint32_t i = 1; i <= count; ++i) {
    const Group &group = header().groups[i];
    if (group.parent == parent && group.split == split && group.color == color)
      return i;
  }
  if (count + 1 == maxGroups)
    throw std::runtime_error("the double of NCCL has room for " + std::to_string(maxGroups) + " communicators");
  Group &group = header().groups[count + 1];
  group.parent = parent;
  group.split = split;
  group.color = color;
  group.size = size;
  header().groupCount.store(count + 1);
  return count + 1;
}

bool World::claimDevice(int rank, const CUuuid &device) {
  Held held(header().lock);
  for (const CUuuid &other : header().devices)
    if (std::memcmp(&other, &device, sizeof device) == 0)
      return false;
  header().devices[rank] = device;
  return true;
}

void World::reclaim() {
  auto isRead = [](const Block &block) {
    return block.post->posted.load() > block.number || block.post->taken.load() >= block.readers;
  };
  while (!blocks.empty() && isRead(blocks.front()))
    blocks.pop_front();
}

/// A ring buffer: free space runs from the end of the newest block to the beginning of the oldest.
uint64_t World::take(uint64_t bytes, const Post &post, uint64_t number, uint32_t readers) {
  reclaim();
  uint64_t first = sizeof(Header) + rank * roomBytes, last = first + roomBytes;
  uint64_t size = (bytes + 63) / 64 * 64;
  if (!bytes)
    return first;
  if (size > roomBytes)
    throw std::runtime_error("nccl: " + std::to_string(bytes) + " bytes to send, the double has room for " +
                             std::to_string(roomBytes));
  uint64_t begin = blocks.empty() ? first : blocks.back().end;
  uint64_t oldest = blocks.empty() ? last : blocks.front().begin;
  bool isWrapped = !blocks.empty() && begin <= oldest;
  if (!isWrapped && begin + size > last) {
    begin = first;
    isWrapped = !blocks.empty();
  }
  if (isWrapped && begin + size >= oldest)
    return 0;
  blocks.push_back({begin, begin + size, &post, number, readers});
  return begin;
}

} // namespace espalier::emulator
