#include "compiler/link/action_writer.h"

namespace espalier {

using namespace rt::pb;

/// Largest number of in-flight sums and gathers.
constexpr size_t mostOpen = 48;

ActionWriter::ActionWriter(const Stage &stage, Actions &out) : stage(stage), block(*out.add_blocks()) {
  block.set_rounds(1);
}

Flight ActionWriter::flight(int64_t transfer, int chunk, uint32_t call, uint32_t microBatch) const {
  Flight made;
  made.set_transfer(static_cast<uint32_t>(transfer));
  made.set_call(call);
  made.set_micro_batch(microBatch);
  addSlots(chunk, call, microBatch, *made.mutable_slots());
  return made;
}

void ActionWriter::start(const Flight &flight) {
  if (!last() || !last()->has_start())
    block.add_actions()->mutable_start();
  *last()->mutable_start()->add_flights() = flight;
}

void ActionWriter::wait(Flight flight) {
  if (!last() || !last()->has_wait())
    block.add_actions()->mutable_wait();
  flight.clear_slots();
  *last()->mutable_wait()->add_flights() = std::move(flight);
}

void ActionWriter::run(exec::Role role, int chunk, uint32_t firstCall, uint32_t calls, uint32_t microBatch,
                       bool backwards, const std::set<uint32_t> &first) {
  bool isNothing = true;
  for (uint32_t call = firstCall; call < firstCall + calls; ++call)
    isNothing = isNothing && stage.calls(static_cast<int>(call)).programs(static_cast<int>(role)) == 0;
  if (isNothing)
    return;
  Run &made = *block.add_actions()->mutable_run();
  made.set_role(static_cast<uint32_t>(role));
  made.set_first_call(firstCall);
  made.set_calls(calls);
  made.set_backwards(backwards);
  made.set_micro_batch(microBatch);
  addSlots(chunk, firstCall, microBatch, *made.mutable_slots());
  made.mutable_first()->Assign(first.begin(), first.end());
}

Action *ActionWriter::last() {
  return block.actions_size() ? block.mutable_actions(block.actions_size() - 1) : nullptr;
}

void ActionWriter::addSlots(int chunk, uint32_t call, uint32_t microBatch,
                            google::protobuf::RepeatedField<uint32_t> &slots) const {
  for (uint32_t lifetime : stage.chunks(chunk).lifetimes())
    slots.Add(slotOf(stage.lifetimes(static_cast<int>(lifetime)), call, microBatch));
}

void OpenTransfers::start(int64_t transfer, int chunk, uint32_t call) {
  open.push_back(writer.flight(transfer, chunk, call, 0));
  writer.start(open.back());
}

void OpenTransfers::makeRoom(size_t count) {
  if (open.size() + count > mostOpen)
    awaitOldest(std::min(open.size(), open.size() + count - mostOpen));
}

void OpenTransfers::awaitOldest(size_t count) {
  for (size_t i = 0; i < count; ++i)
    writer.wait(std::move(open[i]));
  open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count));
}

} // namespace espalier
