// One rank on the CPU: its arena in host memory, its work done by its threads when it is issued.
#pragma once

#include "runtime/device/cpu/backend.h"

#include <array>
#include <vector>

namespace espalier::rt {

class CpuDevice final : public Device {
public:
  CpuDevice(const CpuBackend &backend, const pb::Stage &stage, const RankHost &host);

  uint64_t allocatedBytes() const override { return arena.bytes() + scratch.bytes(); }
  void copyIn(uint64_t to, const void *from, size_t bytes) override;
  void copyOut(void *to, uint64_t from, size_t bytes) override;
  void fill(uint64_t to, int value, size_t bytes) override;
  void launch(const KernelLaunch &launch) override;
  void call(const LibraryLaunch &launch) override;
  uint32_t addCollective(std::span<const int> members, const CollectiveShape &shape) override;
  uint32_t openSend(int peer, Stream stream) override;
  uint32_t openReceive(int peer, Stream stream) override;
  Ticket startCollective(uint32_t collective, std::span<const uint64_t> from, std::span<const uint64_t> to) override;
  Ticket startSend(uint32_t link, uint64_t from, size_t bytes) override;
  Ticket startReceive(uint32_t link, uint64_t to, size_t bytes) override;
  void wait(Ticket &ticket) override;

private:
  /// A collective and the addresses of its running start, read until its wait.
  struct Collective {
    uint32_t group;
    CollectiveShape shape;
    std::vector<void *> from, to;
  };

  void bind(std::span<const uint64_t> places);

  const CpuBackend &backend;
  const RankHost host;
  const size_t scratchPerThread;
  Arena arena, scratch;
  std::vector<Collective> collectives;
  std::vector<void *> addresses; ///< of the running instruction
};

} // namespace espalier::rt
