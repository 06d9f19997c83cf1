// Where a rank stands, as numbers that others can read at any time, also once it is dead: its launcher in the memory
// that they share, or another thread. Nothing here waits or allocates; the step path pays plain stores.
#pragma once

#include <atomic>
#include <cstdint>

namespace espalier::rt {

/// A number that one thread changes and others read.
template <typename T> class Shown {
public:
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

/// One rank's page. Numbers are those of the plan; -1: none.
struct alignas(64) StatusPage {
  std::atomic<uint32_t> beats{0};    ///< grows while the rank's process runs
  std::atomic<bool> hasLeft{false};  ///< it has done its work: nobody misses it when it ends
  std::atomic<bool> hasEnded{false}; ///< it does nothing any more, whatever the reason

  Shown<int64_t> step = -1;   ///< optimizer steps begun before
  Shown<int32_t> entry = -1;  ///< that it runs
  Shown<int64_t> number = -1; ///< of the action, counted through blocks and rounds
  Shown<int32_t> call = -1, subprogram = -1, instruction = -1;
  Shown<int32_t> transfer = -1;   ///< of the flight that it waits for
  Shown<uint32_t> microBatch = 0; ///< of that flight

  /// Outside of every entry.
  void leaveEntry() {
    entry = call = subprogram = instruction = transfer = -1;
    number = -1;
  }
};

} // namespace espalier::rt
