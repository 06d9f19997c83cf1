// Records what a rank did in an entry, and when, for comparison with the planner's simulation. Times are host times.
// While recording, the executor waits for a device that runs asynchronously.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace espalier::rt {

/// A recorded action.
struct TraceEvent {
  enum Kind : uint8_t { Run, Call, Flight, Wait } kind = Run;
  uint32_t subject = 0; ///< role of a RUN and of its calls; transfer of other kinds
  uint32_t call = 0;    ///< index in the stage's calls; the first call of a RUN
  uint32_t microBatch = 0;
  int64_t begin = 0, end = -1; ///< nanoseconds since the recorder was started; -1: not ended
};

/// The events of one entry. Memory is reused between entries.
class TraceRecorder {
public:
  /// Discards all events and restarts the clock.
  void restart() {
    list.clear();
    origin = std::chrono::steady_clock::now();
  }

  /// Begins an event and returns its number.
  size_t begin(TraceEvent::Kind kind, uint32_t subject, uint32_t call, uint32_t microBatch) {
    list.push_back({kind, subject, call, microBatch, now(), -1});
    return list.size() - 1;
  }

  /// Ends an event if it has not ended.
  void end(size_t event) {
    if (list[event].end < 0)
      list[event].end = now();
  }

  /// Returns the events in the order of their beginnings.
  const std::vector<TraceEvent> &events() const { return list; }

private:
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - origin).count();
  }

  std::chrono::steady_clock::time_point origin;
  std::vector<TraceEvent> list;
};

} // namespace espalier::rt
