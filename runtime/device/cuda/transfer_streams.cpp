#include "runtime/device/cuda/transfer_streams.h"

#include "runtime/device/cuda/movement.h"
#include "runtime/status.h"

#include <cstring>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

/// The queue number in the ticket of a barrier. No real queue has this number.
constexpr uint32_t hosts = UINT32_MAX;

} // namespace

TransferStreams::TransferStreams(Queue &compute, const Memory &memory, const HostMemory &hostMemory,
                                 const RankHost &host, std::unique_ptr<NcclGroups> groups)
    : compute(compute), memory(memory), hostMemory(hostMemory), host(host), groups(std::move(groups)),
      issued(compute.driver) {}

bool TransferStreams::needsOthers(const TransferShape &transfer) const {
  bool isLine = transfer.kind == pb::Transfer::SEND || transfer.kind == pb::Transfer::RECEIVE;
  return isLine || transfer.members.size() > 1;
}

NcclGroup TransferStreams::groupOf(const TransferShape &transfer) const {
  int own = host.communicator.rank(), peer = transfer.peer;
  switch (transfer.kind) {
  case pb::Transfer::SEND:
    return {{std::min(own, peer), std::max(own, peer)}, transfer.channel, own};
  case pb::Transfer::RECEIVE:
    return {{std::min(own, peer), std::max(own, peer)}, transfer.channel, peer};
  default:
    return {transfer.members, transfer.queue};
  }
}

uint32_t TransferStreams::add(const TransferShape &shape) {
  Transfer transfer = {.shape = shape, .communicator = {}, .hostGroup = {}};
  if (shape.members.size() > 1 && shape.bytes.empty())
    transfer.hostGroup = host.communicator.joinGroup(shape.members, shape.queue);
  else if (needsOthers(shape) && !groups)
    throw PlanError(
        fmt::format("a plan of one rank has a transfer '{}' with others", pb::Transfer::Kind_Name(shape.kind)));
  else if (needsOthers(shape))
    transfer.communicator = groups->find(groupOf(shape));
  while (queues.size() < shape.queue)
    queues.emplace_back(compute.driver);
  transfers.push_back(std::move(transfer));
  return transfers.size() - 1;
}

TransferTicket TransferStreams::start(const TransferStart &request) {
  const Transfer &transfer = transfers[request.transfer];
  if (transfer.hostGroup) {
    lastBarrier = host.communicator.startCollective(*transfer.hostGroup, transfer.shape.shape, nullptr, nullptr);
    return {hosts, 0};
  }
  Queue &queue = transfer.shape.queue > 0 ? queues[transfer.shape.queue - 1] : compute;
  compute.record(issued);
  queue.waitFor(issued);
  move(transfer, request, queue);
  if (isFree.empty()) {
    isFree.push_back(ends.size());
    ends.emplace_back(compute.driver);
  }
  uint32_t end = isFree.back();
  isFree.pop_back();
  queue.record(ends[end]);
  return {transfer.shape.queue, end};
}

void TransferStreams::move(const Transfer &transfer, const TransferStart &request, Queue &queue) {
  if (transfer.communicator) {
    from.clear();
    to.clear();
    for (Place place : request.from)
      from.push_back(at(place));
    for (Place place : request.to)
      to.push_back(at(place));
    return groups->start(*transfer.communicator, transfer.shape, from, to, queue.stream());
  }
  // In a group of one rank, a collective is at most a copy.
  for (size_t i = 0; i < transfer.shape.bytes.size(); ++i)
    copy(queue, request.from[i], request.to[i], transfer.shape.bytes[i]);
}

void TransferStreams::wait(TransferTicket ticket) {
  if (ticket.queue == hosts)
    return host.communicator.wait(lastBarrier, host.spins);
  compute.waitFor(ends[ticket.number]);
  isFree.push_back(ticket.number);
}

bool TransferStreams::hasEnded(TransferTicket ticket) const {
  return ticket.queue != hosts && ends[ticket.number].isPassed();
}

void TransferStreams::check() {
  throwIfStopped(host.communicator);
  if (groups)
    groups->check();
}

void TransferStreams::leave() {
  for (Queue &queue : queues) {
    queue.watch = compute.watch;
    queue.finish();
  }
  if (groups)
    groups->leave();
}

void TransferStreams::abort() noexcept {
  if (groups)
    groups->abort();
}

// Pinned host memory has the same address on the device.
CUdeviceptr TransferStreams::at(Place place) const {
  return place.memory == pb::DEVICE ? memory.at(place.offset)
                                    : reinterpret_cast<CUdeviceptr>(hostMemory.at(place.offset));
}

void TransferStreams::copy(Queue &queue, Place from, Place to, size_t bytes) {
  if (bytes == 0 || (from.memory == to.memory && from.offset == to.offset))
    return;
  CUdeviceptr target = at(to);
  const Driver &driver = queue.driver;
  if (from.memory == pb::HOST)
    driver.cuMemcpyHtoDAsync_v2(target, hostMemory.at(from.offset), bytes, queue.stream());
  else if (to.memory == pb::DEVICE)
    driver.cuMemcpyDtoDAsync_v2(target, memory.at(from.offset), bytes, queue.stream());
  else
    driver.cuMemcpyDtoHAsync_v2(hostMemory.at(to.offset), memory.at(from.offset), bytes, queue.stream());
}

} // namespace espalier::rt::cuda
