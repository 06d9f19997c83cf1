// Actions of an entry as messages of the plan: slots of the chunk's lifetimes are put in, neighbours joined.
#pragma once

#include "dialects/exec/dialect.h"

#include "runtime/plan.pb.h"

#include <set>

namespace espalier {

/// The slot of a lifetime for a call and micro-batch: what rotates does so with micro-batches, calls take turns in the
/// rest.
inline uint32_t slotOf(const rt::pb::Lifetime &lifetime, uint32_t call, uint32_t microBatch) {
  return (lifetime.rotates() ? microBatch : call) % lifetime.slots();
}

/// Appends actions; neighbouring STARTs and neighbouring WAITs are one.
class ActionWriter {
public:
  ActionWriter(const rt::pb::Stage &stage, rt::pb::Actions &out);

  rt::pb::Flight flight(int64_t transfer, int chunk, uint32_t call, uint32_t microBatch) const;
  void start(const rt::pb::Flight &flight);
  void wait(rt::pb::Flight flight);

  /// Starts nothing where no call has the role.
  void run(exec::Role role, int chunk, uint32_t firstCall, uint32_t calls, uint32_t microBatch, bool backwards = false,
           const std::set<uint32_t> &first = {});

private:
  rt::pb::Action *last();
  void addSlots(int chunk, uint32_t call, uint32_t microBatch, google::protobuf::RepeatedField<uint32_t> &slots) const;

  const rt::pb::Stage &stage;
  rt::pb::Block &block;
};

} // namespace espalier
