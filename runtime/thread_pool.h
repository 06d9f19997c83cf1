// The fixed threads of one rank. After construction no thread is created and nothing is allocated.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace espalier::rt {

/// Returns the error text for a thread that cannot be created.
std::string threadRefusal(const std::system_error &error);

/// Starts a std::thread or std::jthread. Throws std::runtime_error with the text of threadRefusal().
template <typename Thread, typename Work> Thread startThread(Work &&work) {
  try {
    return Thread(std::forward<Work>(work));
  } catch (const std::system_error &error) {
    throw std::runtime_error(threadRefusal(error));
  }
}

/// Threads that execute the parts of one job at a time. The caller is thread 0.
class ThreadPool {
public:
  using Work = void (*)(void *context, int64_t part, int thread);

  /// `spins` is the number of polls before a thread sleeps; 0 if threads outnumber cores. Throws if a thread cannot be
  /// created; all created threads have then ended.
  ThreadPool(int threads, int spins);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;

  int threads() const { return static_cast<int>(workers.size()) + 1; }
  /// Returns whether each thread of the host's ranks has a core of its own.
  bool hasOwnCores() const { return spins > 0; }

  /// Calls work(context, part, thread) once for every part in [0, parts) and returns when all are done. Any thread may
  /// run a part. Rethrows the first exception of a part. A single part runs on the caller without waking other threads.
  void run(int64_t parts, Work work, void *context);

private:
  void end();
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
