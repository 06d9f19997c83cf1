// The thread pool executes work in parts of whole grains. A crash in any thread is reported as a crash of the rank.
#include "runtime/device/cpu/device.h"

#include "runtime/crash_report.h"
#include "runtime/program.h"

#include <algorithm>
#include <cstring>

namespace espalier::rt {
namespace {

struct LaunchJob {
  const Executor *site;
  KernelFunction kernel;
  void *const *buffers;
  const int64_t *scalars;
  int64_t extent, partExtent;
};

void runLaunchPart(void *context, int64_t part, int) {
  const LaunchJob &job = *static_cast<const LaunchJob *>(context);
  CrashSite site(job.site);
  int64_t begin = part * job.partExtent;
  job.kernel(job.buffers, job.scalars, begin, std::min(job.extent, begin + job.partExtent));
}

struct LibraryJob {
  const Executor *site;
  const LibraryKernel *kernel;
  const CallArguments *arguments;
  std::byte *scratch;
  size_t scratchBytes;
};

void runLibraryPart(void *context, int64_t part, int thread) {
  const LibraryJob &job = *static_cast<const LibraryJob *>(context);
  CrashSite site(job.site);
  job.kernel->run(*job.arguments, part, job.scratch + thread * job.scratchBytes);
}

/// Allocates the memory of a rank. The rank's own thread touches it first, so that it lies on the near NUMA node.
std::byte *takeArena(Communicator &communicator, uint64_t bytes) {
  constexpr uint64_t pageBytes = 4096;
  std::byte *arena = communicator.allocate(bytes);
  for (uint64_t page = 0; page < bytes; page += pageBytes)
    arena[page] = std::byte{0};
  return arena;
}

} // namespace

CpuDevice::CpuDevice(const CpuBackend &backend, const pb::Stage &stage, const RankHost &host)
    : backend(backend), rank(host), scratchPerThread(backend.scratchBytesPerThread(stage)),
      deviceBytes(stage.arena_bytes(pb::DEVICE)), deviceArena(takeArena(host.communicator, deviceBytes)),
      hostArena(stage.arena_bytes(pb::HOST)),
      scratch(scratchPerThread * host.pool.threads() + backend.sharedScratchBytes(stage)),
      queues(host.communicator, host.spins), addresses(maxBuffers), moreAddresses(maxBuffers) {}

// A rank that holds no elements of a parameter has an offset outside of the arena, but then copies no bytes.
void CpuDevice::copyIn(uint64_t to, const void *from, size_t bytes) {
  if (bytes > 0)
    std::memcpy(deviceArena + to, from, bytes);
}

void CpuDevice::copyOut(void *to, uint64_t from, size_t bytes) {
  if (bytes > 0)
    std::memcpy(to, deviceArena + from, bytes);
}

void CpuDevice::fill(uint64_t to, int value, size_t bytes) { std::memset(deviceArena + to, value, bytes); }

void *CpuDevice::at(Place place) const {
  return place.memory == pb::DEVICE ? deviceArena + place.offset : hostArena.at(place.offset);
}

void CpuDevice::bind(std::span<const Place> places) {
  for (size_t i = 0; i < places.size(); ++i)
    addresses[i] = at(places[i]);
}

TransferTicket CpuDevice::start(const TransferStart &request) {
  bind(request.from);
  for (size_t i = 0; i < request.to.size(); ++i)
    moreAddresses[i] = at(request.to[i]);
  return queues.start(request.transfer, {addresses.data(), request.from.size()},
                      {moreAddresses.data(), request.to.size()});
}

void CpuDevice::launch(const KernelLaunch &launch) {
  bind(launch.buffers);
  KernelFunction kernel = backend.kernel(launch.kernel);
  int64_t grains = (launch.extent + launch.grain - 1) / launch.grain;
  int64_t parts = std::min<int64_t>(grains, rank.pool.threads());
  if (parts <= 1) {
    if (launch.extent > 0)
      kernel(addresses.data(), launch.scalars.data(), 0, launch.extent);
    return;
  }
  int64_t partExtent = (grains + parts - 1) / parts * launch.grain;
  LaunchJob job = {CrashSite::current(), kernel, addresses.data(), launch.scalars.data(), launch.extent, partExtent};
  rank.pool.run((launch.extent + partExtent - 1) / partExtent, runLaunchPart, &job);
}

void CpuDevice::call(const LibraryLaunch &launch) {
  bind(launch.buffers);
  const LibraryKernel &kernel = backend.call(launch.subprogram, launch.instruction);
  CallArguments arguments;
  arguments.buffers = addresses.data();
  arguments.scalars = launch.scalars.data();
  arguments.adds = launch.accumulate;
  arguments.scratch = scratch.at(scratchPerThread * rank.pool.threads());
  arguments.seed = static_cast<uint32_t>(backend.plan().settings().seed());
  LibraryJob job = {CrashSite::current(), &kernel, &arguments, scratch.at(0), scratchPerThread};
  rank.pool.run(kernel.parts(), runLibraryPart, &job);
  kernel.finish(arguments);
}

} // namespace espalier::rt
