#include "runtime/device/cuda/device.h"

#include "runtime/program.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

uint32_t blocksOf(int64_t iterations, uint32_t perBlock) {
  return static_cast<uint32_t>((iterations + perBlock - 1) / perBlock);
}

class PinnedBlock final : public HostBlock {
public:
  PinnedBlock(const Driver &driver, uint64_t bytes) : memory(driver, bytes) {}
  std::span<std::byte> bytes() const override { return {memory.at(0), memory.bytes}; }

private:
  const HostMemory memory;
};

} // namespace

CudaDevice::CudaDevice(const LoadedPlan &plan, const pb::Stage &stage, const RankHost &host,
                       std::unique_ptr<NcclGroups> groups)
    : plan(plan), driver(plan.context.driver), compute(driver),
      memory(plan.context, compute, stage.arena_bytes(pb::DEVICE), Matmuls::workspaceBytes),
      hostMemory(driver, stage.arena_bytes(pb::HOST)), staging(driver),
      transfers(compute, memory, hostMemory, host, std::move(groups)), turnEnds{Event(driver), Event(driver)} {
  compute.watch = [this] { transfers.check(); };
  plan.matmuls().warmUp(compute, memory.at(0), stage.arena_bytes(pb::DEVICE), memory.workspace());
  if (const char *file = std::getenv("ESPALIER_CUDA_TIMES"))
    timeline.emplace(driver, file);
}

// Memory must not be freed while in use. After a failure on any rank, pending work may never end, so it is aborted.
CudaDevice::~CudaDevice() {
  try {
    compute.finish();
    transfers.leave();
  } catch (const std::exception &) {
    transfers.abort();
  }
}

// The driver's own allocation, its context, exists before this process can measure memory, so it is not included.
std::string CudaDevice::describeMemory() const {
  auto gibibytes = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  size_t freeNow = plan.context.memory().free, taken = plan.freeAtFirst - std::min(plan.freeAtFirst, freeNow);
  return fmt::format(
      "device memory: {:.3f} GiB arena, {:.3f} GiB workspace, {:.3f} GiB code, cuBLASLt and NCCL; {:.3f} "
      "GiB of the host pinned",
      gibibytes(memory.bytes() - memory.workspaceBytes), gibibytes(memory.workspaceBytes),
      gibibytes(taken - std::min<size_t>(taken, memory.bytes())), gibibytes(hostMemory.bytes));
}

void CudaDevice::copyIn(uint64_t to, const void *from, size_t bytes) {
  staging.copyIn(compute, memory.at(to), from, bytes);
}

void CudaDevice::copyOut(void *to, uint64_t from, size_t bytes) {
  staging.copyOut(compute, to, memory.at(from), bytes);
}

std::unique_ptr<HostBlock> CudaDevice::allocateHost(uint64_t bytes) {
  return std::make_unique<PinnedBlock>(driver, bytes);
}

void CudaDevice::copyOut(std::span<std::byte> to, std::span<const DeviceRange> from) {
  if (!copies)
    copies.emplace(driver);
  Event issued(driver), end(driver);
  compute.record(issued);
  copies->waitFor(issued);
  size_t at = 0;
  for (const DeviceRange &range : from) {
    if (range.bytes > 0)
      driver.cuMemcpyDtoHAsync_v2(to.data() + at, memory.at(range.offset), range.bytes, copies->stream());
    at += range.bytes;
  }
  copies->record(end);
  end.wait(compute.watch);
}

void CudaDevice::fill(uint64_t to, int value, size_t bytes) {
  if (bytes > 0)
    driver.cuMemsetD8Async(memory.at(to), static_cast<unsigned char>(value), bytes, compute.stream());
}

void CudaDevice::launch(const KernelLaunch &launch) {
  const PlanKernel &kernel = plan.kernel(launch.kernel);
  Grid grid;
  grid.blocksX = blocksOf(launch.extent, kernel.extentPerBlock);
  if (kernel.columnsPerBlock > 0)
    grid.blocksY = blocksOf(launch.scalars[0], kernel.columnsPerBlock);
  grid.threads = kernel.threads;
  grid.sharedBytes = kernel.sharedBytes;
  if (grid.blocksX == 0 || grid.blocksY == 0)
    return;
  if (timeline)
    timeline->begin(compute);
  enqueue(launch, kernel, grid);
  if (timeline)
    timeline->end(compute, fmt::format("{} {} ({} x {} blocks of {})", kernel.symbol, launch.extent, grid.blocksX,
                                       grid.blocksY, grid.threads));
}

void CudaDevice::enqueue(const KernelLaunch &launch, const PlanKernel &kernel, const Grid &grid) {
  std::array<uint64_t, maxBuffers + maxScalars + 1> arguments;
  size_t count = 0;
  for (Place place : launch.buffers)
    arguments[count++] = memory.at(place.offset);
  for (int64_t scalar : launch.scalars)
    arguments[count++] = static_cast<uint64_t>(scalar);
  arguments[count++] = static_cast<uint64_t>(launch.extent);
  cuda::launch(compute, kernel.kernel, grid, std::span(arguments).first(count));
}

void CudaDevice::call(const LibraryLaunch &launch) {
  const LibraryCall &call = plan.call(launch.subprogram, launch.instruction);
  if (timeline)
    timeline->begin(compute);
  enqueue(launch, call);
  if (timeline)
    timeline->end(compute, describe(call), flopsOf(call));
}

void CudaDevice::enqueue(const LibraryLaunch &launch, const LibraryCall &call) {
  auto at = [&](int operand) { return memory.at(launch.buffers[operand].offset); };
  if (auto *product = std::get_if<const Matmuls::Product *>(&call)) {
    const MatmulShape &shape = Matmuls::shapeOf(**product);
    MatmulOperands operands = {at(0), at(1), at(2)};
    if (shape.hasRow())
      operands.row = at(3);
    if (shape.bytesOfMatrix() > 0)
      operands.matrix = at(shape.hasRow() ? 4 : 3);
    return plan.matmuls().run(compute, **product, operands, launch.accumulate, memory.workspace());
  }
  if (auto *strided = std::get_if<StridedCopy>(&call))
    return copy(compute, /*to=*/at(1), /*from=*/at(0), *strided);
  if (auto *rearranged = std::get_if<Rearrangement>(&call))
    return rearrange(compute, /*to=*/at(1), /*from=*/at(0), *rearranged);
  if (auto *clearing = std::get_if<Clearing>(&call))
    return zero(compute, at(0), clearing->bytes);
}

void CudaDevice::endTurn() { compute.record(turnEnds[turns++ % 2]); }

void CudaDevice::finishTurns(int behind) {
  if (turns > static_cast<uint64_t>(behind))
    turnEnds[(turns - 1 - behind) % 2].wait(compute.watch);
}

} // namespace espalier::rt::cuda
