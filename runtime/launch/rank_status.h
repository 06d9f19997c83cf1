// The status of a rank, as numbers that the launcher or another thread can read at any time, even after the rank has
// died. Nothing here waits or allocates. The step path only makes plain stores.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace espalier::rt {

/// A number that one thread writes and others read.
template <typename T> class Shown {
public:
  /// Starts with `value`.
  Shown(T value = {}) : value(value) {}
  Shown(const Shown &) = delete;
  Shown &operator=(const Shown &) = delete;
  T operator=(T next) {
    value.store(next, std::memory_order_relaxed);
    return next;
  }
  operator T() const { return value.load(std::memory_order_relaxed); }

private:
  std::atomic<T> value;
  static_assert(std::atomic<T>::is_always_lock_free, "a lock would be one process's");
};

/// The progress of a thread of a rank. The thread writes it, and the watchers of the run read it.
struct Activity {
  /// The kind of event that the thread waits for.
  enum Wait : int32_t { Nothing, Ranks, OwnDevice };
  static constexpr int mostFrames = 32;

  Shown<int32_t> process = 0, thread = 0; ///< numbers of the system; thread 0: there is nothing to watch
  Shown<uint32_t> moves = 0;              ///< grows with each piece of an entry's work
  Shown<uint32_t> looks = 0;              ///< grows whenever the thread looks whether what it waits for has come
  Shown<int32_t> wait = Nothing;
  std::array<Shown<uintptr_t>, mostFrames> stack; ///< return addresses, the innermost first; see requestStack()
  std::atomic<int32_t> frames{-1};                ///< of `stack`; -1: the thread has left none

  /// Notes a piece of work.
  void move() { moves = moves + 1; }
  /// Notes a look at what the thread waits for.
  void look() { looks = looks + 1; }
};

/// Marks the thread as waiting for `what` while this object exists. A null activity is not watched.
class Waits {
public:
  Waits(Activity *activity, Activity::Wait what) : activity(activity) { set(what); }
  ~Waits() { set(Activity::Nothing); }
  Waits(const Waits &) = delete;
  void look() const {
    if (activity)
      activity->look();
  }

private:
  void set(Activity::Wait what) const {
    if (activity)
      activity->wait = what;
  }
  Activity *activity;
};

/// The status of one rank. Numbers index the plan's tables; -1 means none.
struct alignas(64) RankStatus {
  std::atomic<uint32_t> beats{0};         ///< heartbeat counter of the rank's process
  std::atomic<uint32_t> launcherBeats{0}; ///< of the process that supervises it; 0: none does yet
  std::atomic<bool> hasLeft{false};       ///< the rank has completed, so its end is no failure
  std::atomic<bool> hasEnded{false};      ///< the rank does nothing any more, for any reason

  Shown<int64_t> step = -1;   ///< optimizer steps begun before
  Shown<int32_t> entry = -1;  ///< the entry that runs
  Shown<int64_t> number = -1; ///< index of the action, counted through blocks and rounds
  Shown<int32_t> call = -1, subprogram = -1, instruction = -1;
  Shown<int32_t> transfer = -1;   ///< the in-flight transfer that the rank waits for
  Shown<uint32_t> microBatch = 0; ///< of that transfer

  Activity main, writer;        ///< of the thread that trains, and of the one that writes checkpoints meanwhile
  Shown<float> stepSeconds = 0; ///< the median of the last steps; 0: none has ended

  /// The slowest ranks of the run, which all ranks know; see SlowRanks. -1: none.
  struct Slow {
    Shown<int32_t> rank = -1;
    Shown<float> ratio = 1; ///< its compute time over the median
  };
  std::array<Slow, 4> slow;

  /// Clears the position when no entry runs.
  void leaveEntry() {
    entry = call = subprogram = instruction = transfer = -1;
    number = -1;
  }
};

} // namespace espalier::rt
