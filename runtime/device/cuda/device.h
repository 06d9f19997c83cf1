// One rank on a GPU. The host issues and goes on; the compute queue does the work in order.
#pragma once

#include "runtime/device/cuda/backend.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/timeline.h"

#include <optional>

namespace espalier::rt::cuda {

class CudaDevice final : public Device {
public:
  CudaDevice(const CudaBackend &backend, const pb::Stage &stage);
  ~CudaDevice() override;

  uint64_t allocatedBytes() const override { return memory.bytes(); }
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
  void enqueue(const KernelLaunch &launch, const PlanKernel &kernel, const Grid &grid);
  void enqueue(const LibraryLaunch &launch, const LibraryCall &call);

  const CudaBackend &backend;
  const Driver &driver;
  Queue compute;
  Memory memory;
  Staging staging;
  std::optional<Timeline> timeline; ///< where ESPALIER_CUDA_TIMES names a file for it
  std::vector<CollectiveShape> collectives;
};

} // namespace espalier::rt::cuda
