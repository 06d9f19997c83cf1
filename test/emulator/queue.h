// Streams and events of the emulated device. Work waits in its stream until somebody waits or asks for it; then what is
// needed for that runs, on the thread that asks, and nothing else: a wait that is missing has something to miss.
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
  /// Asked when its turn has come, until it says yes: what works together with other devices waits for them. Null: it
  /// waits for nobody.
  std::function<bool()> isReady = {};
};

/// An operation in its place.
struct Work {
  std::function<Accesses()> run;
  std::function<bool()> isReady;
  Mark mark;
  Clock clock;                              // of all that comes before, and itself
  std::vector<std::shared_ptr<Work>> waits; // in other streams
  bool isDone = false;
  std::chrono::steady_clock::time_point doneAt = {};
};

struct Stream {
  size_t number;
  bool isBlocking; // waits for the legacy stream and is waited for by it
  int device;
  std::deque<std::shared_ptr<Work>> pending = {};
  std::shared_ptr<Work> last = {};
  std::vector<std::shared_ptr<Work>> waits = {}; // of the next operation
  Clock waited = {};                             // what the next operation comes after
  uint64_t ticks = 0;
};

/// What was recorded into it last.
struct Event {
  bool hasTiming;
  int device = 0; // whose streams alone may record it
  std::shared_ptr<Work> recorded = {};
};

class Queue {
public:
  /// With a seed other than 0, whatever can run does, in an order that the seed chooses.
  explicit Queue(uint64_t seed);

  Stream *open(bool isBlocking, int device = 0);
  void close(Stream *stream);
  bool owns(const Stream *stream) const;
  /// The next other stream of its device that has had work; itself where there is none.
  Stream *neighbour(Stream *stream);
  Stream *legacy() { return streams.front().get(); }

  void enqueue(Stream *stream, Operation operation);
  void record(Event &event, Stream *stream);
  void wait(Stream *stream, const Event &event);

  /// One step towards the work's end; whether it is done. The host comes after it then.
  bool advance(const std::shared_ptr<Work> &work);
  void finish(std::shared_ptr<Work> work);
  void finishAll();
  /// Of one device only: others may wait for what only its own rank can do.
  void finishAll(int device);
  /// One step towards the end of each operation that waits for other devices, which tells the host nothing. Whether
  /// there was any.
  bool carryOn();
  void forget(Range range) { accesses.forget(range); }
  /// Lets work run again after a fault.
  void mend() { isBroken = false; }

  /// Told of a race; what runs may throw. After the first fault, work is dropped.
  std::function<void(const Race &)> onRace;
  std::function<void(const std::exception &)> onFault;
  /// Called where nothing can be done but to wait for other devices.
  std::function<void()> onIdle;

private:
  std::vector<std::unique_ptr<Stream>> streams; // the legacy stream first
  std::vector<std::shared_ptr<Work>> shared;    // not done, with isReady, in order of issue
  size_t opened = 0;
  Clock host; // what the host has seen end
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
