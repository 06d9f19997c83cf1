// The thread pool executes work in parts of whole grains. A crash in any thread is reported as a crash of the rank.
#include "runtime/device/cpu/device.h"

#include "runtime/crash_report.h"
#include "runtime/program.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace espalier::rt {
namespace {

struct LaunchJob {
  const Executor *site;
  KernelFunction kernel;
  void *const *buffers;
  const int64_t *scalars;
  int64_t begin, end, partExtent;
};

void runLaunchPart(void *context, int64_t part, int) {
  const LaunchJob &job = *static_cast<const LaunchJob *>(context);
  CrashSite site(job.site);
  int64_t begin = job.begin + part * job.partExtent;
  job.kernel(job.buffers, job.scalars, begin, std::min(job.end, begin + job.partExtent));
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

class ArenaBlock final : public HostBlock {
public:
  explicit ArenaBlock(uint64_t size) : arena(size), size(size) {}
  std::span<std::byte> bytes() const override { return {arena.at(0), size}; }

private:
  const Arena arena;
  const uint64_t size;
};

/// A copy of ranges that lie one behind the other in `to`.
struct CopyJob {
  std::byte *to;
  const std::byte *from;
  std::span<const DeviceRange> ranges;
  size_t bytes, partBytes;
};

/// Copies the bytes [part * partBytes, (part + 1) * partBytes) of the concatenated ranges.
void runCopyPart(void *context, int64_t part, int) {
  const CopyJob &job = *static_cast<const CopyJob *>(context);
  size_t begin = part * job.partBytes, end = std::min(job.bytes, begin + job.partBytes), at = 0;
  for (const DeviceRange &range : job.ranges) {
    size_t low = std::max(begin, at), high = std::min(end, at + range.bytes);
    if (low < high)
      std::memcpy(job.to + low, job.from + range.offset + (low - at), high - low);
    at += range.bytes;
    if (at >= end)
      return;
  }
}

constexpr uint64_t touchBytes = uint64_t{16} << 20;

/// Touches the pages [part * touchBytes, (part + 1) * touchBytes) of memory.
void runTouchPart(void *context, int64_t part, int) {
  constexpr uint64_t pageBytes = 4096;
  std::span<std::byte> memory = *static_cast<std::span<std::byte> *>(context);
  uint64_t begin = static_cast<uint64_t>(part) * touchBytes;
  for (uint64_t page = begin; page < std::min<uint64_t>(memory.size(), begin + touchBytes); page += pageBytes)
    memory[page] = std::byte{0};
}

/// Allocates the memory of a rank. The rank's own threads touch it first, so that it lies on the near NUMA node.
std::byte *takeArena(const RankHost &host, uint64_t bytes) {
  std::span<std::byte> memory(host.communicator.allocate(bytes), bytes);
  host.pool.run(static_cast<int64_t>((bytes + touchBytes - 1) / touchBytes), runTouchPart, &memory);
  return memory.data();
}

} // namespace

CpuDevice::CpuDevice(const CpuBackend &backend, const pb::Stage &stage, const RankHost &host)
    : backend(backend), stage(stage), rank(host), scratchPerThread(backend.scratchBytesPerThread(stage)),
      deviceBytes(stage.arena_bytes(pb::DEVICE)), deviceArena(takeArena(host, deviceBytes)),
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

std::unique_ptr<HostBlock> CpuDevice::allocateHost(uint64_t bytes) { return std::make_unique<ArenaBlock>(bytes); }

void CpuDevice::copyOut(std::span<std::byte> to, std::span<const DeviceRange> from) {
  constexpr size_t leastPart = size_t{1} << 20;
  if (to.empty())
    return;
  size_t threads = rank.pool.threads(), part = std::max(leastPart, (to.size() + threads - 1) / threads);
  CopyJob job = {to.data(), deviceArena, from, to.size(), part};
  rank.pool.run(static_cast<int64_t>((to.size() + part - 1) / part), runCopyPart, &job);
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

std::pair<int64_t, int64_t> CpuDevice::activeRows(const TokenRows &rows) const {
  if (rows.unit == TokenRows::Token && !active.starts.empty())
    return {0, rows.rows * active.starts.back()};
  int64_t ofSequence = rows.unit == TokenRows::Sequence ? rows.rows
                       : rows.unit == TokenRows::Token
                           ? rows.rows * static_cast<int64_t>(backend.plan().settings().prompt_tokens())
                           : 0;
  return {ofSequence * active.first, ofSequence * active.end};
}

void CpuDevice::launch(const KernelLaunch &launch) {
  bind(launch.buffers);
  KernelFunction kernel = backend.kernel(launch.kernel);
  auto [begin, end] = activeRows(backend.instruction(launch.subprogram, launch.instruction).rows);
  if (end == 0)
    end = launch.extent;
  int64_t extent = end - begin, grains = (extent + launch.grain - 1) / launch.grain;
  int64_t parts = std::min<int64_t>(grains, rank.pool.threads());
  if (parts <= 1) {
    if (extent > 0)
      kernel(addresses.data(), launch.scalars.data(), begin, end);
    return;
  }
  int64_t partExtent = (grains + parts - 1) / parts * launch.grain;
  LaunchJob job = {CrashSite::current(), kernel, addresses.data(), launch.scalars.data(), begin, end, partExtent};
  rank.pool.run((extent + partExtent - 1) / partExtent, runLaunchPart, &job);
}

void CpuDevice::freezeParameters() { packed.pack(WeightUses(backend, stage), deviceArena, rank.pool); }

void CpuDevice::call(const LibraryLaunch &launch) {
  bind(launch.buffers);
  const CpuInstruction &prepared = backend.instruction(launch.subprogram, launch.instruction);
  const LibraryKernel &kernel = *prepared.kernel;
  CallArguments arguments;
  arguments.buffers = addresses.data();
  arguments.scalars = launch.scalars.data();
  arguments.adds = launch.accumulate;
  std::tie(arguments.firstRow, arguments.endRow) = activeRows(prepared.rows);
  arguments.starts = active.starts.empty() ? nullptr : active.starts.data();
  if (launch.buffers.size() > 1)
    arguments.packed = packed.find(kernel, addresses[1]);
  arguments.scratch = scratch.at(scratchPerThread * rank.pool.threads());
  arguments.seed = static_cast<uint32_t>(backend.plan().settings().seed());
  LibraryJob job = {CrashSite::current(), &kernel, &arguments, scratch.at(0), scratchPerThread};
  rank.pool.run(kernel.parts(), runLibraryPart, &job);
  kernel.finish(arguments);
}

} // namespace espalier::rt
