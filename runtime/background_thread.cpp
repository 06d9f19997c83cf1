#include "runtime/background_thread.h"

#include "runtime/thread_pool.h"

#include <utility>

namespace espalier::rt {

BackgroundThread::BackgroundThread() : thread(startThread<std::thread>([this] { serve(); })) {}

BackgroundThread::~BackgroundThread() {
  wait();
  set(Ending);
  thread.join();
}

void BackgroundThread::set(State next) {
  state.store(next, std::memory_order_release);
  state.notify_all();
}

void BackgroundThread::start(std::function<void()> work) {
  job = std::move(work);
  set(Busy);
}

void BackgroundThread::serve() {
  for (;;) {
    state.wait(Idle, std::memory_order_acquire);
    if (state.load(std::memory_order_acquire) == Ending)
      return;
    job();
    set(Idle);
  }
}

} // namespace espalier::rt
