// Queues are CUDA streams: work in one runs in issue order. Events synchronize queues with each other and with the
// host.
#pragma once

#include "runtime/device/cuda/library.h"

#include <functional>

namespace espalier::rt::cuda {

/// Called regularly while the host waits for a device. Throws if waiting has become pointless.
using Watch = std::function<void()>;

/// A CUDA event. Before the first record() it counts as passed.
class Event {
public:
  explicit Event(const Driver &driver, bool isTimed = false);
  ~Event();
  Event(Event &&other) noexcept;
  Event(const Event &) = delete;
  Event &operator=(Event &&) = delete;

  /// Returns whether all work before the event is done.
  bool isPassed() const;
  /// Blocks the host until the event has passed. Polls, because no driver call waits and also returns on an abort.
  void wait(const Watch &watch = {}) const;
  /// Returns the seconds since `begin`. Both events must be timed and passed.
  double secondsSince(const Event &begin) const;

private:
  friend class Queue;
  const Driver &driver;
  CUevent event = nullptr;
};

/// A CUDA stream.
class Queue {
public:
  explicit Queue(const Driver &driver);
  ~Queue();
  Queue(const Queue &) = delete;
  Queue &operator=(const Queue &) = delete;

  /// Records the event after all work issued so far.
  void record(Event &event);
  /// Makes work issued from now on wait for the event. Does not block the host.
  void waitFor(const Event &event);
  /// Blocks the host until all work issued so far is done.
  void finish() const;

  CUstream stream() const { return handle; }
  const Driver &driver;
  Watch watch; ///< called by waits for this queue

private:
  CUstream handle = nullptr;
};

} // namespace espalier::rt::cuda
