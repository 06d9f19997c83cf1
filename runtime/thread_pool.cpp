// A generation counter publishes a job. Workers take parts from a shared counter, spin briefly for the next job, then
// sleep.
#include "runtime/thread_pool.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace espalier::rt {
namespace {

constexpr int spinsPerYield = 128;

/// Waits until `value` differs from `seen`: polls `spins` times, then sleeps.
void awaitChange(const std::atomic<uint32_t> &value, uint32_t seen, int spins) {
  for (int spin = 0; spin < spins; ++spin) {
    if (value.load(std::memory_order_acquire) != seen)
      return;
    // Yields, because the awaited thread may be scheduled on this core.
    if (spin % spinsPerYield == spinsPerYield - 1)
      std::this_thread::yield();
    else
      __builtin_ia32_pause();
  }
  value.wait(seen, std::memory_order_acquire);
}

} // namespace

std::string threadRefusal(const std::system_error &error) {
  return fmt::format(
      "the system refuses a thread: {}; give fewer with --threads, compile for fewer ranks, or raise the "
      "limits (ulimit -u, ulimit -v)",
      error.code().message());
}

ThreadPool::ThreadPool(int threads, int spins) : spins(spins) {
  try {
    workers.reserve(std::max(0, threads - 1));
    for (int thread = 1; thread < threads; ++thread)
      workers.push_back(startThread<std::thread>([this, thread] { serve(thread); }));
  } catch (...) {
    end();
    throw;
  }
}

ThreadPool::~ThreadPool() { end(); }

void ThreadPool::end() {
  stopping = true;
  generation.fetch_add(1);
  generation.notify_all();
  for (std::thread &worker : workers)
    worker.join();
}

void ThreadPool::run(int64_t parts, Work work, void *context) {
  if (parts <= 1 || workers.empty()) {
    for (int64_t part = 0; part < parts; ++part)
      work(context, part, 0);
    return;
  }
  this->work = work;
  this->context = context;
  this->parts = parts;
  next.store(0, std::memory_order_relaxed);
  busy.store(workers.size(), std::memory_order_relaxed);
  generation.fetch_add(1, std::memory_order_release);
  generation.notify_all();
  takeParts(0);
  for (uint32_t left; (left = busy.load(std::memory_order_acquire)) != 0;)
    awaitChange(busy, left, spins);
  if (failed.exchange(false))
    std::rethrow_exception(std::exchange(failure, nullptr));
}

void ThreadPool::serve(int thread) {
  for (uint32_t seen = 0;; ++seen) {
    while (generation.load(std::memory_order_acquire) == seen)
      awaitChange(generation, seen, spins);
    if (stopping)
      return;
    takeParts(thread);
    if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1)
      busy.notify_one();
  }
}

void ThreadPool::takeParts(int thread) {
  try {
    for (int64_t part; (part = next.fetch_add(1, std::memory_order_relaxed)) < parts;)
      work(context, part, thread);
  } catch (...) {
    next.store(parts, std::memory_order_relaxed);
    if (!failed.exchange(true))
      failure = std::current_exception();
  }
}

} // namespace espalier::rt
