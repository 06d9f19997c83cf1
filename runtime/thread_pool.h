// The fixed threads of one rank. No thread is made and nothing is allocated after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace espalier::rt {

/// Threads that share out the parts of one job at a time. The caller is thread 0.
class ThreadPool {
public:
  using Work = void (*)(void *context, int64_t part, int thread);

  /// `spins`: how often a thread looks for work before it sleeps; 0 where threads outnumber cores.
  ThreadPool(int threads, int spins);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;

  int threads() const { return static_cast<int>(workers.size()) + 1; }

  /// Calls work(context, part, thread) once for every part in [0, parts) and returns when all are
  /// done. A part runs on any thread. Rethrows the first exception of a part. One part runs on the
  /// caller without waking anyone.
  void run(int64_t parts, Work work, void *context);

private:
  void serve(int thread);
  void takeParts(int thread);

  const int spins;
  Work work = nullptr;
  void *context = nullptr;
  int64_t parts = 0;
  std::exception_ptr failure;
  alignas(64) std::atomic<uint32_t> generation{0};
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<uint32_t> busy{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> workers;
};

} // namespace espalier::rt
