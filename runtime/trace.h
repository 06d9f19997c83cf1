// What a rank did in an entry, and when: for people who look at a step beside the planner's simulated one. Times are
// the host's; where a device runs behind the host, the executor holds it while it records.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace espalier::rt {

struct TraceEvent {
  enum Kind : uint8_t { Run, Call, Flight, Wait } kind = Run;
  uint32_t subject = 0; ///< role of a RUN and of its calls, else the transfer
  uint32_t call = 0;    ///< index in the stage's calls; of a RUN its first
  uint32_t microBatch = 0;
  int64_t begin = 0, end = -1; ///< nanoseconds since the recorder was started; -1: not ended
};

/// Events of one entry. Memory is kept from entry to entry.
class TraceRecorder {
public:
  /// Forgets what it has; time begins anew.
  void restart() {
    list.clear();
    origin = std::chrono::steady_clock::now();
  }

  /// Begins an event; its number.
  size_t begin(TraceEvent::Kind kind, uint32_t subject, uint32_t call, uint32_t microBatch) {
    list.push_back({kind, subject, call, microBatch, now(), -1});
    return list.size() - 1;
  }

  /// Ends it, if it has not ended.
  void end(size_t event) {
    if (list[event].end < 0)
      list[event].end = now();
  }

  /// In the order of their beginnings.
  const std::vector<TraceEvent> &events() const { return list; }

private:
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - origin).count();
  }

  std::chrono::steady_clock::time_point origin;
  std::vector<TraceEvent> list;
};

} // namespace espalier::rt
