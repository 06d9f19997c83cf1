#include "runtime/device/cuda/flights.h"

#include "runtime/device/cuda/movement.h"
#include "runtime/status.h"

#include <cstring>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

[[noreturn]] void refuse(std::string_view what) {
  throw PlanError(fmt::format("{} on CUDA needs NCCL, which this version does not use", what));
}

} // namespace

Flights::Flights(Queue &compute, const Memory &memory, const HostMemory &host)
    : compute(compute), memory(memory), host(host), issued(compute.driver) {}

uint32_t Flights::add(const TransferShape &transfer) {
  if (transfer.kind == pb::Transfer::SEND)
    refuse(fmt::format("sending to rank {}", transfer.peer));
  if (transfer.kind == pb::Transfer::RECEIVE)
    refuse(fmt::format("receiving from rank {}", transfer.peer));
  if (transfer.members.size() > 1)
    refuse(fmt::format("a collective of {} ranks", transfer.members.size()));
  while (queues.size() < transfer.queue)
    queues.emplace_back(compute.driver);
  transfers.push_back(transfer);
  return transfers.size() - 1;
}

FlightTicket Flights::start(const FlightStart &flight) {
  const TransferShape &transfer = transfers[flight.transfer];
  Queue &queue = transfer.queue > 0 ? queues[transfer.queue - 1] : compute;
  compute.record(issued);
  queue.waitFor(issued);
  // Alone in its group a rank has already what a collective leaves: at most its place differs.
  for (size_t i = 0; i < transfer.bytes.size(); ++i)
    copy(queue, flight.from[i], flight.to[i], transfer.bytes[i]);
  if (isFree.empty()) {
    isFree.push_back(ends.size());
    ends.emplace_back(compute.driver);
  }
  uint32_t end = isFree.back();
  isFree.pop_back();
  queue.record(ends[end]);
  return {transfer.queue, end};
}

void Flights::wait(FlightTicket ticket) {
  compute.waitFor(ends[ticket.number]);
  isFree.push_back(ticket.number);
}

void Flights::copy(Queue &queue, Place from, Place to, size_t bytes) {
  if (bytes == 0 || (from.memory == to.memory && from.offset == to.offset))
    return;
  // Pinned memory of the host has the same address on the device.
  CUdeviceptr target =
      to.memory == pb::DEVICE ? memory.at(to.offset) : reinterpret_cast<CUdeviceptr>(host.at(to.offset));
  const Driver &driver = queue.driver;
  if (from.memory == pb::HOST)
    driver.cuMemcpyHtoDAsync_v2(target, host.at(from.offset), bytes, queue.stream());
  else if (to.memory == pb::DEVICE)
    driver.cuMemcpyDtoDAsync_v2(target, memory.at(from.offset), bytes, queue.stream());
  else
    driver.cuMemcpyDtoHAsync_v2(host.at(to.offset), memory.at(from.offset), bytes, queue.stream());
}

} // namespace espalier::rt::cuda
