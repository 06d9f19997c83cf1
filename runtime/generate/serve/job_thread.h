// A thread that runs jobs in order.
#pragma once

#include "runtime/thread_pool.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace espalier::rt {

/// A thread with a queue. All functions may be called by any thread. Jobs must not throw.
class JobThread {
public:
  /// At most `most` jobs of offer() wait.
  explicit JobThread(size_t most) : most(most), thread(startThread<std::jthread>([this] { work(); })) {}
  /// Drops the jobs that wait.
  ~JobThread() {
    {
      std::lock_guard lock(mutex);
      isEnding = true;
      changed.notify_all();
    }
    thread.join();
  }

  /// Adds a job unless too many wait. Returns whether it did.
  bool offer(std::function<void()> job) {
    std::lock_guard lock(mutex);
    return jobs.size() < most && add(std::move(job));
  }
  /// Adds a job beyond the bound: the second half of an offered one.
  void insist(std::function<void()> job) {
    std::lock_guard lock(mutex);
    add(std::move(job));
  }

private:
  bool add(std::function<void()> job) {
    jobs.push_back(std::move(job));
    changed.notify_all();
    return true;
  }

  void work() {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return isEnding || !jobs.empty(); });
        if (isEnding)
          return;
        job = std::move(jobs.front());
        jobs.pop_front();
      }
      job();
    }
  }

  const size_t most;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  bool isEnding = false;
  std::jthread thread;
};

} // namespace espalier::rt
