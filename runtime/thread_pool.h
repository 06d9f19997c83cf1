// The fixed threads of one rank. No thread is made and nothing is allocated after construction.
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

/// The sentence where a thread cannot be created.
std::string threadRefusal(const std::system_error &error);

/// A std::thread or std::jthread; throws with that sentence.
template <typename Thread, typename Work> Thread startThread(Work &&work) {
  try {
    return Thread(std::forward<Work>(work));
  } catch (const std::system_error &error) {
    throw std::runtime_error(threadRefusal(error));
  }
}

/// Threads that share out the parts of one job at a time. The caller is thread 0.
class ThreadPool {
public:
  using Work = void (*)(void *context, int64_t part, int thread);

  /// `spins`: how often a thread looks for work before it sleeps; 0 where threads outnumber cores. Throws where the
  /// system refuses a thread; those that were made have ended then.
  ThreadPool(int threads, int spins);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;

  int threads() const { return static_cast<int>(workers.size()) + 1; }

  /// Calls work(context, part, thread) once for every part in [0, parts) and returns when all are
  /// done. A part runs on any thread. Rethrows the first exception of a part. One part runs on the
  /// caller without waking anyone.
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
