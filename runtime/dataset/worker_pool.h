// A fixed number of threads that run tasks in submission order. Results are futures.
#pragma once

#include "messages/data_error.h"

#include <condition_variable>
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace espalier::rt {

/// A pool of threads for tasks with results of type Result.
template <typename Result> class WorkerPool {
public:
  /// Starts `workers` threads. Throws DataError if the system refuses a thread.
  explicit WorkerPool(int workers) {
    try {
      for (int i = 0; i < workers; ++i)
        threads.emplace_back([this, i] { run(i); });
    } catch (const std::system_error &error) {
      close();
      throw DataError("workers", fmt::format("the system refuses thread {} of {}: {}; give fewer with --workers",
                                             threads.size() + 1, workers, error.code().message()));
    }
  }
  /// Drops tasks that have not begun and waits for running tasks.
  ~WorkerPool() { close(); }
  WorkerPool(const WorkerPool &) = delete;
  WorkerPool &operator=(const WorkerPool &) = delete;

  /// Submits a task. `task` gets the number of the worker that runs it. The future rethrows its exceptions.
  std::future<Result> submit(std::function<Result(int)> task) {
    std::packaged_task<Result(int)> packaged(std::move(task));
    std::future<Result> result = packaged.get_future();
    {
      std::lock_guard lock(mutex);
      waiting.push_back(std::move(packaged));
    }
    wake.notify_one();
    return result;
  }

private:
  void close() {
    {
      std::lock_guard lock(mutex);
      isClosing = true;
      waiting.clear();
    }
    wake.notify_all();
    for (std::thread &thread : threads)
      thread.join();
  }
  void run(int worker) {
    while (true) {
      std::packaged_task<Result(int)> task;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [this] { return isClosing || !waiting.empty(); });
        if (waiting.empty())
          return;
        task = std::move(waiting.front());
        waiting.pop_front();
      }
      task(worker);
    }
  }

  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::packaged_task<Result(int)>> waiting;
  bool isClosing = false;
  std::vector<std::thread> threads;
};

} // namespace espalier::rt
