// A thread for work that overlaps with training.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace espalier::rt {

/// A thread that runs one job at a time. Its owner starts jobs and waits for them.
class BackgroundThread {
public:
  /// Throws std::runtime_error if the system refuses a thread.
  BackgroundThread();
  /// Waits for the running job.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread &) = delete;

  /// Starts a job, which must not throw. The job before must have ended.
  void start(std::function<void()> work);
  /// Returns whether a job runs. After false, the caller sees what the job has written.
  bool isBusy() const { return state.load(std::memory_order_acquire) == Busy; }
  /// Blocks until no job runs.
  void wait() const { state.wait(Busy, std::memory_order_acquire); }

private:
  enum State : uint32_t { Idle, Busy, Ending };

  void serve();
  void set(State next);

  std::function<void()> job;
  std::atomic<uint32_t> state{Idle};
  std::thread thread;
};

} // namespace espalier::rt
