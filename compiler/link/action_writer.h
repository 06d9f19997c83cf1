// Writes the actions of an entry as plan messages. Fills in the ring slots of the chunk's live ranges and merges
// adjacent actions of one kind.
#pragma once

#include "dialects/exec/dialect.h"

#include "format/plan.pb.h"

#include <set>

namespace espalier {

/// Returns the ring slot that a live range uses for a layer call and a micro-batch. A rotating live range cycles
/// through its slots by micro-batch. Any other live range cycles by layer call.
inline uint32_t slotOf(const rt::pb::Lifetime &lifetime, uint32_t call, uint32_t microBatch) {
  return (lifetime.rotates() ? microBatch : call) % lifetime.slots();
}

/// Appends actions to one block. Adjacent STARTs are merged, and so are adjacent WAITs.
class ActionWriter {
public:
  /// Appends a block to `out`. Reads the calls, chunks and live ranges of `stage`.
  ActionWriter(const rt::pb::Stage &stage, rt::pb::Actions &out);

  /// Returns an in-flight transfer of a layer call and micro-batch, with the ring slots that it uses.
  rt::pb::Flight flight(int64_t transfer, int chunk, uint32_t call, uint32_t microBatch) const;
  /// Starts a transfer.
  void start(const rt::pb::Flight &flight);
  /// Waits for a transfer.
  void wait(rt::pb::Flight flight);

  /// Appends a RUN of `calls` layer calls from `firstCall` on. Appends nothing if none of these calls has a program for
  /// the role.
  void run(exec::Role role, int chunk, uint32_t firstCall, uint32_t calls, uint32_t microBatch, bool backwards = false,
           const std::set<uint32_t> &first = {});

private:
  rt::pb::Action *last();
  void addSlots(int chunk, uint32_t call, uint32_t microBatch, google::protobuf::RepeatedField<uint32_t> &slots) const;

  const rt::pb::Stage &stage;
  rt::pb::Block &block;
};

/// The transfers of an entry that a later wait ends, oldest first. Their number is limited.
class OpenTransfers {
public:
  explicit OpenTransfers(ActionWriter &writer) : writer(writer) {}

  /// Starts a transfer of a layer call that a later makeRoom() or finish() waits for.
  void start(int64_t transfer, int chunk, uint32_t call);
  /// Makes room for `count` new transfers. Waits for the oldest first.
  void makeRoom(size_t count);
  /// Waits for all transfers.
  void finish() { awaitOldest(open.size()); }

private:
  void awaitOldest(size_t count);

  ActionWriter &writer;
  std::vector<rt::pb::Flight> open;
};

} // namespace espalier
