// Ranks sleep on a futex, because a futex works across processes and a std::condition_variable does not.
#include "runtime/comm/board.h"

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
  static_assert(std::is_trivially_destructible_v<T>, "the board's memory is dropped as a whole");
  static_assert(alignof(T) <= 64);
  T *first = static_cast<T *>(memory.take(count * sizeof(T)));
  std::uninitialized_default_construct_n(first, count);
  return first;
}

/// Locks the lists of groups and channels. The holder may be a dead process, so an abort ends the wait.
class Loading {
public:
  explicit Loading(Board &board) : board(board) {
    while (board.isLoading.exchange(true, std::memory_order_acquire)) {
      if (board.isStopped.load(std::memory_order_acquire))
        throw RankStopped();
      std::this_thread::yield();
    }
  }
  ~Loading() { board.isLoading.store(false, std::memory_order_release); }
  Loading(const Loading &) = delete;
  Loading &operator=(const Loading &) = delete;

private:
  Board &board;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
              "the futex is the number itself");
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a lock would be one process's");

} // namespace

Board *Board::make(int ranks, SharedMemory &memory, bool isOneProcess) {
  Board *board = rt::make<Board>(memory);
  board->ranks = ranks;
  board->isOneProcess = isOneProcess;
  board->bells = rt::make<Bell>(memory, ranks);
  board->pages = rt::make<StatusPage>(memory, ranks);
  board->notices = static_cast<Notices *>(memory.take(sizeof(Notices))); // zeroed memory; no page is touched before the
                                                                         // first post
  return board;
}

void Board::ring(int rank) {
  Bell &bell = bells[rank];
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  if (bell.sleepers.load(std::memory_order_seq_cst) > 0)
    syscall(SYS_futex, &bell.rings, FUTEX_WAKE | (isOneProcess ? FUTEX_PRIVATE_FLAG : 0), INT_MAX, nullptr, nullptr, 0);
}

void Board::ringAll(std::span<const int> members) {
  for (int member : members)
    ring(member);
}

void Board::sleep(int rank, uint32_t seen) {
  Bell &bell = bells[rank];
  bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  timespec second{1, 0};
  if (bell.rings.load(std::memory_order_seq_cst) == seen)
    syscall(SYS_futex, &bell.rings, FUTEX_WAIT | (isOneProcess ? FUTEX_PRIVATE_FLAG : 0), seen, &second, nullptr, 0);
  bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Board::abort(const Failure &failure) noexcept {
  if (!first.isClaimed.exchange(true, std::memory_order_acq_rel)) {
    pack(failure, first.failure);
    first.isWritten.store(true, std::memory_order_release);
  }
  isStopped.store(true, std::memory_order_seq_cst);
  for (int rank = 0; rank < ranks; ++rank)
    ring(rank);
}

std::optional<Failure> Board::failure() const {
  if (!first.isWritten.load(std::memory_order_acquire))
    return std::nullopt;
  return unpack(first.failure);
}

Group *Board::findGroup(std::span<const int> members, uint32_t queue, SharedMemory &memory) {
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

Line *Board::findLine(int from, int to, uint32_t number, SharedMemory &memory) {
  Loading lock(*this);
  for (Line *line = lines; line; line = line->next)
    if (line->from == from && line->to == to && line->number == number)
      return line;
  Line *line = rt::make<Line>(memory);
  line->from = from;
  line->to = to;
  line->number = number;
  line->next = lines;
  lines = line;
  return line;
}

} // namespace espalier::rt
