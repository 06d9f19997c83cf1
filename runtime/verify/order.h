// The transfers of a stage in order of issue, as rules H and I use them.
#pragma once

#include "runtime/verify/play.h"

namespace espalier::rt::verify {

/// An issued transfer of a stage. The transfer is null if it represents the transfers that the instructions of a RUN
/// start.
struct Issued {
  const pb::Transfer *transfer = nullptr;
  uint32_t call = 0, microBatch = 0;
  uint32_t action = 0;     ///< the action that starts it, as an index into StageStream.actions
  uint32_t rendezvous = 0; ///< the number of the collective or send/receive pair, equal on all stages that take part; 0
                           ///< if no other stage takes part
  uint32_t members = 1;
  bool hasEnded = false;
};

/// A step of a stage: issues a transfer or waits for one.
struct StreamStep {
  uint32_t transfer = 0; ///< index into StageStream.transfers
  bool isWait = false;
};

/// The instruction stream of a stage, with rounds expanded.
struct StageStream {
  std::vector<Issued> transfers;
  std::vector<StreamStep> steps;
  std::vector<std::pair<const pb::Action *, uint64_t>> actions; ///< with the micro-batch offset of their round
  std::vector<uint32_t> issued; ///< in order of issue; `front` indexes the next one to end
  size_t next = 0, front = 0;
};

} // namespace espalier::rt::verify
