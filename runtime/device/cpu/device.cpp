// Work is shared out over the pool in parts of whole grains; a part on any thread reports a crash as the rank's.
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

} // namespace

CpuDevice::CpuDevice(const CpuBackend &backend, const pb::Stage &stage, const RankHost &host)
    : backend(backend), host(host), scratchPerThread(backend.scratchBytesPerThread(stage)), arena(stage.arena_bytes()),
      scratch(scratchPerThread * host.pool.threads() + backend.sharedScratchBytes(stage)), addresses(maxBuffers) {}

void CpuDevice::copyIn(uint64_t to, const void *from, size_t bytes) { std::memcpy(arena.at(to), from, bytes); }
void CpuDevice::copyOut(void *to, uint64_t from, size_t bytes) { std::memcpy(to, arena.at(from), bytes); }
void CpuDevice::fill(uint64_t to, int value, size_t bytes) { std::memset(arena.at(to), value, bytes); }

void CpuDevice::bind(std::span<const uint64_t> places) {
  for (size_t i = 0; i < places.size(); ++i)
    addresses[i] = arena.at(places[i]);
}

void CpuDevice::launch(const KernelLaunch &launch) {
  bind(launch.buffers);
  KernelFunction kernel = backend.kernel(launch.kernel);
  int64_t grains = (launch.extent + launch.grain - 1) / launch.grain;
  int64_t parts = std::min<int64_t>(grains, host.pool.threads());
  if (parts <= 1) {
    if (launch.extent > 0)
      kernel(addresses.data(), launch.scalars.data(), 0, launch.extent);
    return;
  }
  int64_t partExtent = (grains + parts - 1) / parts * launch.grain;
  LaunchJob job = {CrashSite::current(), kernel, addresses.data(), launch.scalars.data(), launch.extent, partExtent};
  host.pool.run((launch.extent + partExtent - 1) / partExtent, runLaunchPart, &job);
}

void CpuDevice::call(const LibraryLaunch &launch) {
  bind(launch.buffers);
  const LibraryKernel &kernel = backend.call(launch.subprogram, launch.instruction);
  CallArguments arguments;
  arguments.buffers = addresses.data();
  arguments.scalars = launch.scalars.data();
  arguments.accumulate = launch.accumulate;
  arguments.scratch = scratch.at(scratchPerThread * host.pool.threads());
  arguments.seed = static_cast<uint32_t>(backend.plan().settings().seed());
  arguments.step = static_cast<uint32_t>(launch.step);
  LibraryJob job = {CrashSite::current(), &kernel, &arguments, scratch.at(0), scratchPerThread};
  host.pool.run(kernel.parts(), runLibraryPart, &job);
  kernel.finish(arguments);
}

uint32_t CpuDevice::addCollective(std::span<const int> members, const CollectiveShape &shape) {
  size_t buffers = shape.elements.size();
  collectives.push_back(
      {host.communicator.joinGroup(members), shape, std::vector<void *>(buffers), std::vector<void *>(buffers)});
  return collectives.size() - 1;
}

uint32_t CpuDevice::openSend(int peer, Stream stream) { return host.communicator.openSend(peer, stream); }
uint32_t CpuDevice::openReceive(int peer, Stream stream) { return host.communicator.openReceive(peer, stream); }

Ticket CpuDevice::startCollective(uint32_t collective, std::span<const uint64_t> from, std::span<const uint64_t> to) {
  Collective &running = collectives[collective];
  auto addressOf = [&](uint64_t place) -> void * { return arena.at(place); };
  std::ranges::transform(from, running.from.begin(), addressOf);
  std::ranges::transform(to, running.to.begin(), addressOf);
  return host.communicator.startCollective(running.group, running.shape, running.from.data(), running.to.data());
}

Ticket CpuDevice::startSend(uint32_t link, uint64_t from, size_t bytes) {
  return host.communicator.startSend(link, arena.at(from), bytes);
}

Ticket CpuDevice::startReceive(uint32_t link, uint64_t to, size_t bytes) {
  return host.communicator.startReceive(link, arena.at(to), bytes);
}

void CpuDevice::wait(Ticket &ticket) { host.communicator.wait(ticket, host.spins); }

} // namespace espalier::rt
