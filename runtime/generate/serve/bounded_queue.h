// Distributes connections to a fixed number of threads. A separate thread refuses connections beyond the bound, because
// dropping a job would leave its socket open.
#pragma once

#include <condition_variable>
#include <deque>
#include <httplib.h>
#include <mutex>
#include <thread>

namespace espalier::rt {

/// A task queue for httplib with a bounded number of waiting connections.
class BoundedQueue final : public httplib::TaskQueue {
public:
  BoundedQueue(size_t threads, size_t most) : served(most), refused(most) {
    for (size_t i = 0; i < threads; ++i)
      workers.emplace_back([this] { work(served); });
    workers.emplace_back([this] {
      refusing() = true;
      work(refused);
    });
  }

  /// Called by the accepting thread. If the refusing thread is also busy, refuses here and accepts nothing meanwhile.
  void enqueue(std::function<void()> job) override {
    if (put(served, job) || put(refused, job))
      return;
    refusing() = true;
    job();
    refusing() = false;
  }

  void shutdown() override {
    {
      std::lock_guard lock(mutex);
      isEnding = true;
      changed.notify_all();
    }
    for (std::thread &worker : workers)
      worker.join();
  }

  /// Returns whether the calling thread must refuse its connection.
  static bool isRefusing() { return refusing(); }

private:
  struct Line {
    explicit Line(size_t most) : most(most) {}
    const size_t most;
    std::deque<std::function<void()>> jobs;
  };

  static bool &refusing() {
    thread_local bool is = false;
    return is;
  }

  bool put(Line &line, std::function<void()> &job) {
    std::lock_guard lock(mutex);
    if (line.jobs.size() >= line.most)
      return false;
    line.jobs.push_back(std::move(job));
    changed.notify_all();
    return true;
  }

  void work(Line &line) {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return isEnding || !line.jobs.empty(); });
        if (line.jobs.empty())
          return;
        job = std::move(line.jobs.front());
        line.jobs.pop_front();
      }
      job();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  Line served, refused;
  bool isEnding = false;
  std::vector<std::thread> workers;
};

} // namespace espalier::rt
