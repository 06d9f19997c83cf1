// Sleep of a thread that its owner may end early.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace espalier::rt {

/// Belongs to the owner of the thread. The constructor takes all memory that sleeping needs, because the thread may
/// begin when the system already refuses memory, and an exception there would end the process without a report.
class StoppableSleep {
public:
  /// Sleeps for a time. Returns false at once if the thread is asked to stop.
  bool sleep(const std::stop_token &isOver, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    never.wait_for(lock, isOver, time, [] { return false; });
    return !isOver.stop_requested();
  }

private:
  std::mutex mutex;
  std::condition_variable_any never;
};

} // namespace espalier::rt
