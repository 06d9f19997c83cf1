#include "runtime/device/cuda/queue.h"

#include <chrono>
#include <thread>

namespace espalier::rt::cuda {
namespace {

constexpr int pollsBeforeSleep = 2000; // about a millisecond
constexpr std::chrono::microseconds sleep{20};

constexpr int pollsBetweenWatches = 64;

/// Polls until `isDone`, first without and then with sleeps in between.
template <typename Condition> void pollUntil(const Watch &watch, Condition isDone) {
  for (int polls = 0; !isDone(); ++polls) {
    if (watch && polls % pollsBetweenWatches == 0)
      watch();
    if (polls >= pollsBeforeSleep)
      std::this_thread::sleep_for(sleep);
  }
}

} // namespace

Event::Event(const Driver &driver, bool isTimed) : driver(driver) {
  driver.cuEventCreate(&event, isTimed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
}

Event::Event(Event &&other) noexcept : driver(other.driver), event(std::exchange(other.event, nullptr)) {}

Event::~Event() {
  if (event)
    driver.cuEventDestroy_v2.answer(event);
}

bool Event::isPassed() const {
  if (driver.cuEventQuery.answer(event) == CUDA_ERROR_NOT_READY)
    return false;
  driver.cuEventQuery(event); // throws the error of the earlier work
  return true;
}

void Event::wait(const Watch &watch) const {
  pollUntil(watch, [this] { return isPassed(); });
}

double Event::secondsSince(const Event &begin) const {
  float milliseconds = 0;
  driver.cuEventElapsedTime(&milliseconds, begin.event, event);
  return milliseconds * 1e-3;
}

Queue::Queue(const Driver &driver) : driver(driver) { driver.cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING); }

Queue::~Queue() { driver.cuStreamDestroy_v2.answer(handle); }

void Queue::record(Event &event) { driver.cuEventRecord(event.event, handle); }

void Queue::waitFor(const Event &event) { driver.cuStreamWaitEvent(handle, event.event, /*Flags=*/0); }

void Queue::finish() const {
  pollUntil(watch, [this] {
    if (driver.cuStreamQuery.answer(handle) == CUDA_ERROR_NOT_READY)
      return false;
    driver.cuStreamQuery(handle);
    return true;
  });
}

} // namespace espalier::rt::cuda
