// Writes the actions of an entry as plan messages. Fills in the ring slots of the chunk's live ranges and merges
// adjacent actions of one kind.
#pragma once

#include "dialects/exec/dialect.h"

#include "runtime/plan.pb.h"

#include <set>

namespace espalier {

/// Returns the ring slot that a live range uses for a call and a micro-batch. A rotating live range cycles through its
/// slots by micro-batch. Any other live range cycles by call.
inline uint32_t slotOf(const rt::pb::Lifetime &lifetime, uint32_t call, uint32_t microBatch) {
  return (lifetime.rotates() ? microBatch : call) % lifetime.slots();
}

/// Appends actions to one block. Adjacent STARTs are merged, and so are adjacent WAITs.
class ActionWriter {
public:
  /// Appends a block to `out`. Reads the calls, chunks and live ranges of `stage`.
  ActionWriter(const rt::pb::Stage &stage, rt::pb::Actions &out);

  /// Returns an in-flight transfer of a call and micro-batch, with the ring slots that it uses.
  rt::pb::Flight flight(int64_t transfer, int chunk, uint32_t call, uint32_t microBatch) const;
  /// Starts a transfer.
  void start(const rt::pb::Flight &flight);
  /// Waits for a transfer.
  void wait(rt::pb::Flight flight);

  /// Appends a RUN of `calls` calls from `firstCall` on. Appends nothing if none of these calls has a program for the
  /// role.
  void run(exec::Role role, int chunk, uint32_t firstCall, uint32_t calls, uint32_t microBatch, bool backwards = false,
           const std::set<uint32_t> &first = {});

private:
  rt::pb::Action *last();
  void addSlots(int chunk, uint32_t call, uint32_t microBatch, google::protobuf::RepeatedField<uint32_t> &slots) const;

  const rt::pb::Stage &stage;
  rt::pb::Block &block;
};

} // namespace espalier
