// One rank on a GPU. The host enqueues work without waiting; the compute stream executes it in order.
#pragma once

#include "runtime/device/cuda/backend.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/nccl.h"
#include "runtime/device/cuda/timeline.h"
#include "runtime/device/cuda/transfer_streams.h"

#include <optional>

namespace espalier::rt::cuda {

/// The CUDA device of one rank.
class CudaDevice final : public Device {
public:
  /// `groups` is null for a plan of one rank.
  CudaDevice(const LoadedPlan &plan, const pb::Stage &stage, const RankHost &host, std::unique_ptr<NcclGroups> groups);
  ~CudaDevice() override;

  uint64_t allocatedBytes() const override { return memory.bytes() + hostMemory.bytes; }
  std::string describeMemory() const override;
  void copyIn(uint64_t to, const void *from, size_t bytes) override;
  void copyOut(void *to, uint64_t from, size_t bytes) override;
  std::unique_ptr<HostBlock> allocateHost(uint64_t bytes) override;
  void copyOut(std::span<std::byte> to, std::span<const DeviceRange> from) override;
  void fill(uint64_t to, int value, size_t bytes) override;
  std::byte *host(uint64_t offset) override { return hostMemory.at(offset); }
  void launch(const KernelLaunch &launch) override;
  void call(const LibraryLaunch &launch) override;
  uint32_t addTransfer(const TransferShape &transfer) override { return transfers.add(transfer); }
  TransferTicket start(const TransferStart &request) override { return transfers.start(request); }
  void wait(TransferTicket ticket) override { transfers.wait(ticket); }
  bool hasEnded(TransferTicket ticket) const override { return transfers.hasEnded(ticket); }
  void drain() override { compute.finish(); }
  void endTurn() override;
  void finishTurns(int behind) override;

private:
  void enqueue(const KernelLaunch &launch, const PlanKernel &kernel, const Grid &grid);
  void enqueue(const LibraryLaunch &launch, const LibraryCall &call);

  const LoadedPlan &plan;
  const Driver &driver;
  Queue compute;
  Memory memory;
  HostMemory hostMemory;
  Staging staging;
  TransferStreams transfers;
  std::optional<Queue> copies;      ///< the stream of copies to pinned blocks
  std::array<Event, 2> turnEnds;    ///< ends of the last two entries
  uint64_t turns = 0;               ///< entries issued
  std::optional<Timeline> timeline; ///< set if ESPALIER_CUDA_TIMES names an output file
};

} // namespace espalier::rt::cuda
