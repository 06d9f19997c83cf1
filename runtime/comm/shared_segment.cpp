// Ranks sleep on a futex, because a futex works across processes and a std::condition_variable does not.
#include "runtime/comm/shared_segment.h"

#include <algorithm>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <new>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

template <typename T> T *make(SharedMemory &memory, size_t count = 1) {
  static_assert(std::is_trivially_destructible_v<T>, "the segment's memory is dropped as a whole");
  static_assert(alignof(T) <= 64);
  T *first = static_cast<T *>(memory.take(count * sizeof(T)));
  std::uninitialized_default_construct_n(first, count);
  return first;
}

/// Locks the lists of groups and channels. The holder may be a dead process, so an abort ends the wait.
class Loading {
public:
  explicit Loading(SharedSegment &segment) : segment(segment) {
    while (segment.isLoading.exchange(true, std::memory_order_acquire)) {
      if (segment.isStopped.load(std::memory_order_acquire))
        throw RankStopped();
      std::this_thread::yield();
    }
  }
  ~Loading() { segment.isLoading.store(false, std::memory_order_release); }
  Loading(const Loading &) = delete;
  Loading &operator=(const Loading &) = delete;

private:
  SharedSegment &segment;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
              "the futex is the number itself");
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a lock would be one process's");

} // namespace

SharedSegment *SharedSegment::make(int ranks, SharedMemory &memory, bool isOneProcess) {
  SharedSegment *segment = rt::make<SharedSegment>(memory);
  segment->ranks = ranks;
  segment->isOneProcess = isOneProcess;
  segment->bells = rt::make<Bell>(memory, ranks);
  segment->statuses = rt::make<RankStatus>(memory, ranks);
  segment->keyValues =
      static_cast<KeyValueStore *>(memory.take(sizeof(KeyValueStore))); // zeroed memory; no page is touched before the
                                                                        // first post
  return segment;
}

void SharedSegment::ring(int rank) {
  Bell &bell = bells[rank];
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  if (bell.sleepers.load(std::memory_order_seq_cst) > 0)
    syscall(SYS_futex, &bell.rings, FUTEX_WAKE | (isOneProcess ? FUTEX_PRIVATE_FLAG : 0), INT_MAX, nullptr, nullptr, 0);
}

void SharedSegment::ringAll(std::span<const int> members) {
  for (int member : members)
    ring(member);
}

void SharedSegment::sleep(int rank, uint32_t seen) {
  Bell &bell = bells[rank];
  bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  timespec second{1, 0};
  if (bell.rings.load(std::memory_order_seq_cst) == seen)
    syscall(SYS_futex, &bell.rings, FUTEX_WAIT | (isOneProcess ? FUTEX_PRIVATE_FLAG : 0), seen, &second, nullptr, 0);
  bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void SharedSegment::abort(const Failure &failure) noexcept {
  if (!first.isClaimed.exchange(true, std::memory_order_acq_rel)) {
    pack(failure, first.failure);
    first.isWritten.store(true, std::memory_order_release);
  }
  isStopped.store(true, std::memory_order_seq_cst);
  for (int rank = 0; rank < ranks; ++rank)
    ring(rank);
}

std::optional<Failure> SharedSegment::failure() const {
  if (!first.isWritten.load(std::memory_order_acquire))
    return std::nullopt;
  return unpack(first.failure);
}

Group *SharedSegment::findGroup(std::span<const int> members, uint32_t queue, SharedMemory &memory) {
  Loading lock(*this);
  for (Group *group = groups; group; group = group->next)
    if (group->queue == queue && std::ranges::equal(group->ranks(), members))
      return group;
  Group *group = rt::make<Group>(memory);
  group->queue = queue;
  group->size = static_cast<int>(members.size());
  group->members = rt::make<int>(memory, members.size());
  std::ranges::copy(members, group->members);
  for (Round &round : group->rounds) {
    round.posts = rt::make<Post>(memory, members.size());
    std::fill_n(round.posts, members.size(), Post{});
  }
  group->next = groups;
  groups = group;
  return group;
}

Channel *SharedSegment::findChannel(int from, int to, uint32_t number, SharedMemory &memory) {
  Loading lock(*this);
  for (Channel *channel = channels; channel; channel = channel->next)
    if (channel->from == from && channel->to == to && channel->number == number)
      return channel;
  Channel *channel = rt::make<Channel>(memory);
  channel->from = from;
  channel->to = to;
  channel->number = number;
  channel->next = channels;
  channels = channel;
  return channel;
}

} // namespace espalier::rt
