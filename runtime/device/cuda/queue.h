// Queues are streams: work of one runs in order of issue; events tie them to each other and to the host.
#pragma once

#include "runtime/device/cuda/library.h"

#include <functional>

namespace espalier::rt::cuda {

/// Called now and then while the host waits for a device; throws where that has become pointless.
using Watch = std::function<void()>;

/// A point in a queue's work. Before the first record() it counts as passed.
class Event {
public:
  explicit Event(const Driver &driver, bool isTimed = false);
  ~Event();
  Event(Event &&other) noexcept;
  Event(const Event &) = delete;
  Event &operator=(Event &&) = delete;

  bool isPassed() const;
  /// Holds the host until it is passed. Polled, not blocked: the driver offers no other wait that ends on an abort.
  void wait(const Watch &watch = {}) const;
  /// Seconds from `begin` to here; both timed and passed.
  double secondsSince(const Event &begin) const;

private:
  friend class Queue;
  const Driver &driver;
  CUevent event = nullptr;
};

class Queue {
public:
  explicit Queue(const Driver &driver);
  ~Queue();
  Queue(const Queue &) = delete;
  Queue &operator=(const Queue &) = delete;

  /// Places the event behind all work issued so far.
  void record(Event &event);
  /// Work issued from now on begins after the event; the host goes on.
  void waitFor(const Event &event);
  /// Holds the host until all work issued so far is done.
  void finish() const;

  CUstream stream() const { return handle; }
  const Driver &driver;
  Watch watch; ///< of waits for this queue

private:
  CUstream handle = nullptr;
};

} // namespace espalier::rt::cuda
