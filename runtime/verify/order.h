// Flights of a stage in order of issue, as rules H and I see them.
#pragma once

#include "runtime/verify/play.h"

namespace espalier::rt::verify {

/// A flight of a stage; without a transfer, what the instructions of a RUN start.
struct Issued {
  const pb::Transfer *transfer = nullptr;
  uint32_t call = 0, microBatch = 0;
  uint32_t action = 0;  ///< that starts it, by Line.actions
  uint32_t meeting = 0; ///< the same for all that take part in it; 0: nobody else does
  uint32_t members = 1;
  bool hasEnded = false;
};

/// A flight is issued, or waited for.
struct LineStep {
  uint32_t flight = 0;
  bool isWait = false;
};

/// A stage's list, rounds multiplied out.
struct Line {
  std::vector<Issued> flights;
  std::vector<LineStep> steps;
  std::vector<std::pair<const pb::Action *, uint64_t>> actions; ///< with what their round adds to micro-batches
  std::vector<uint32_t> issued;                                 ///< in order; `front` is the next to end
  size_t next = 0, front = 0;
};

} // namespace espalier::rt::verify
