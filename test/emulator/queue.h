// Streams and events of the emulated device. Work is executed lazily: a host wait or query runs exactly the work that
// it depends on, on the calling thread. So a missing wait leaves work unexecuted and shows.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "test/emulator/access_map.h"

namespace espalier::emulator {

/// A piece of work of a stream.
struct Operation {
  std::string name; // for reports: "kernel softmax", "copy of 400 bytes to the device"
  std::function<Accesses()> run;
  /// Polled when the work's turn has come, until it returns true. Work that cooperates with other devices uses it to
  /// wait for them. Null: does not wait.
  std::function<bool()> isReady = {};
};

/// An operation and its dependencies.
struct Work {
  std::function<Accesses()> run;
  std::function<bool()> isReady;
  Mark mark;
  Clock clock;                              // of all earlier operations and of itself
  std::vector<std::shared_ptr<Work>> waits; // in other streams
  bool isDone = false;
  std::chrono::steady_clock::time_point doneAt = {};
};

struct Stream {
  size_t number;
  bool isBlocking; // synchronizes with the legacy stream
  int device;
  std::deque<std::shared_ptr<Work>> pending = {};
  std::shared_ptr<Work> last = {};
  std::vector<std::shared_ptr<Work>> waits = {}; // of the next operation
  Clock waited = {};                             // dependencies of the next operation
  uint64_t ticks = 0;
};

/// An event: refers to the work that was last recorded into it.
struct Event {
  bool hasTiming;
  int device = 0; // only streams of this device may record it
  std::shared_ptr<Work> recorded = {};
};

class Queue {
public:
  /// With a seed other than 0, runs any runnable work, in an order that depends on the seed.
  explicit Queue(uint64_t seed);

  Stream *open(bool isBlocking, int device = 0);
  void close(Stream *stream);
  bool owns(const Stream *stream) const;
  /// Returns the next other stream of the device that has had work, or the stream itself.
  Stream *neighbour(Stream *stream);
  Stream *legacy() { return streams.front().get(); }

  void enqueue(Stream *stream, Operation operation);
  void record(Event &event, Stream *stream);
  void wait(Stream *stream, const Event &event);

  /// Advances the work by one step. Returns whether it is done; the host is then ordered after it.
  bool advance(const std::shared_ptr<Work> &work);
  void finish(std::shared_ptr<Work> work);
  void finishAll();
  /// Waits for work of one device only, because other devices may wait for work of their own rank.
  void finishAll(int device);
  /// Advances each operation that waits for other devices, without ordering it before the host. Returns whether there
  /// is any.
  bool carryOn();
  void forget(Range range) { accesses.forget(range); }
  /// Allows work to run again after a fault.
  void mend() { isBroken = false; }

  /// Called on a race. May throw. After the first fault, work is dropped.
  std::function<void(const Race &)> onRace;
  std::function<void(const std::exception &)> onFault;
  /// Called when all work waits for other devices.
  std::function<void()> onIdle;

private:
  std::vector<std::unique_ptr<Stream>> streams; // the legacy stream is the first
  std::vector<std::shared_ptr<Work>> shared;    // operations with isReady that are not done, in issue order
  size_t opened = 0;
  Clock host; // the work that the host has seen end
  AccessMap accesses;
  uint64_t seed;
  std::mt19937_64 random;
  bool isBroken = false;

  Stream *streamOf(const Work &work) const;
  std::shared_ptr<Work> runnable(const std::shared_ptr<Work> &wanted) const;
  bool step(const std::shared_ptr<Work> &work);
  bool mayRun(Work &work);
  void run(Stream &stream);
};

} // namespace espalier::emulator
