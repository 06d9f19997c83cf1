// One rank on the CPU: arenas in host memory, work executed by the rank's threads when it is issued.
#pragma once

#include "runtime/device/cpu/backend.h"
#include "runtime/device/cpu/packed_weights.h"
#include "runtime/device/cpu/transfer_queues.h"

#include <vector>

namespace espalier::rt {

/// The CPU device of one rank.
class CpuDevice final : public Device {
public:
  CpuDevice(const CpuBackend &backend, const pb::Stage &stage, const RankHost &host);

  uint64_t allocatedBytes() const override {
    return deviceBytes + hostArena.bytes() + scratch.bytes() + packed.bytes();
  }
  void copyIn(uint64_t to, const void *from, size_t bytes) override;
  void copyOut(void *to, uint64_t from, size_t bytes) override;
  std::unique_ptr<HostBlock> allocateHost(uint64_t bytes) override;
  void copyOut(std::span<std::byte> to, std::span<const DeviceRange> from) override;
  void fill(uint64_t to, int value, size_t bytes) override;
  std::byte *writable(uint64_t offset) override { return deviceArena + offset; }
  std::byte *host(uint64_t offset) override { return hostArena.at(offset); }
  void freezeParameters() override;
  void setActive(ActiveTokens tokens) override { active = std::move(tokens); }
  void launch(const KernelLaunch &launch) override;
  void call(const LibraryLaunch &launch) override;
  uint32_t addTransfer(const TransferShape &transfer) override { return queues.add(transfer); }
  TransferTicket start(const TransferStart &request) override;
  void wait(TransferTicket ticket) override { queues.wait(ticket); }
  bool isSynchronous() const override { return true; }
  bool hasEnded(TransferTicket ticket) const override { return queues.hasEnded(ticket); }
  void progress() override { queues.progress(); }

private:
  void *at(Place place) const;
  void bind(std::span<const Place> places);
  /// Returns the rows of an instruction that are needed; an end of 0: all.
  std::pair<int64_t, int64_t> activeRows(const TokenRows &rows) const;

  const CpuBackend &backend;
  const pb::Stage &stage;
  const RankHost rank;
  const size_t scratchPerThread;
  const uint64_t deviceBytes;
  std::byte *const deviceArena; ///< other ranks can read and write it
  Arena hostArena, scratch;
  TransferQueues queues;
  PackedWeights packed;
  ActiveTokens active;
  std::vector<void *> addresses, moreAddresses; ///< operands of the running instruction
};

} // namespace espalier::rt
