// The executor's interface to hardware. A device holds one rank's memory, runs its kernels and does its transfers.
// Buffers are offsets in the rank's two memories; only device/ and comm/ use addresses. Queue 0 computes: its work is
// done in issue order. Every other queue runs its transfers one after the other.
#pragma once

#include "format/plan.pb.h"
#include "runtime/comm/comm.h"
#include "runtime/thread_pool.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// The start of a buffer: an offset in the arena of one memory.
struct Place {
  uint64_t offset = 0;
  pb::Memory memory = pb::DEVICE;
};

/// One launch of a generated kernel.
struct KernelLaunch {
  uint32_t subprogram, instruction; ///< indices in the plan
  uint32_t kernel;                  ///< index in Plan.kernels
  std::span<const Place> buffers;   ///< in the order of the launch
  std::span<const int64_t> scalars;
  int64_t extent, grain;
};

/// One execution of a library call of the plan.
struct LibraryLaunch {
  uint32_t subprogram, instruction; ///< indices in the plan
  std::span<const Place> buffers;
  std::span<const int64_t> scalars;
  bool accumulate; ///< adds to the destination instead of overwriting it
};

/// A transfer from the point of view of this rank.
struct TransferShape {
  pb::Transfer::Kind kind = pb::Transfer::COPY;
  uint32_t queue = 0;
  std::vector<int> members = {};  ///< collectives: global ranks in ascending order, with this rank
  CollectiveShape shape = {};     ///< collectives
  int peer = 0;                   ///< SEND and RECEIVE: the other rank
  uint32_t channel = 0;           ///< SEND and RECEIVE: the channel number
  std::vector<size_t> bytes = {}; ///< SEND, RECEIVE and COPY: per buffer
};

/// The start of a transfer, with one offset per buffer.
struct TransferStart {
  uint32_t transfer; ///< as returned by addTransfer()
  std::span<const Place> from, to;
};

/// A started transfer: its queue, and its number on the device.
struct TransferTicket {
  uint32_t queue = 0;
  uint64_t number = 0;
};

/// Bytes of device memory, from an offset on.
struct DeviceRange {
  uint64_t offset = 0;
  size_t bytes = 0;
};

/// The sequences and tokens of a plan's batch for which the next entries of generation compute.
struct ActiveTokens {
  int64_t first = 0, end = 0; ///< sequences [first, end); an end of 0: all
  /// [sequences + 1]: the tokens of sequence s are the rows [starts[s], starts[s + 1]) of the batch. Empty: each
  /// sequence has as many rows as the entry has tokens per sequence.
  std::vector<int32_t> starts = {};
};

/// Host memory that its device copies to at full speed: pinned on GPUs. Must not outlive the device.
class HostBlock {
public:
  virtual ~HostBlock() = default;
  /// Returns the memory, 64-byte aligned. Any thread may use it.
  virtual std::span<std::byte> bytes() const = 0;
};

/// One rank's device. Used by one thread.
class Device {
public:
  virtual ~Device() = default;

  /// Returns the bytes allocated for this rank: the arenas and the workspace of library calls.
  virtual uint64_t allocatedBytes() const = 0;

  /// Describes device memory used besides the plan's; empty if there is none.
  virtual std::string describeMemory() const { return ""; }

  /// Copies from the host to an offset in device memory; called between entries. `from` may be changed when this
  /// returns; work issued later sees the bytes.
  virtual void copyIn(uint64_t to, const void *from, size_t bytes) = 0;
  /// Copies to the host after all work issued before; called between entries. The bytes are there when this returns.
  virtual void copyOut(void *to, uint64_t from, size_t bytes) = 0;
  /// Allocates and zeroes host memory for copyOut(). Throws PlanError or MemoryError if the system refuses the memory.
  virtual std::unique_ptr<HostBlock> allocateHost(uint64_t bytes) = 0;
  /// Copies ranges, one behind the other, to `to`, which is a part of a block of allocateHost(). Copies after all work
  /// issued before; called between entries. The bytes are there when this returns.
  virtual void copyOut(std::span<std::byte> to, std::span<const DeviceRange> from) = 0;
  /// Sets bytes to `value`; called between entries.
  virtual void fill(uint64_t to, int value, size_t bytes) = 0;
  /// Returns the address of an offset in device memory, or null if the host cannot write there. Several threads may
  /// write between entries.
  virtual std::byte *writable(uint64_t /*offset*/) { return nullptr; }
  /// Returns the address of an offset in host memory.
  virtual std::byte *host(uint64_t offset) = 0;

  /// Declares that the parameters do not change any more, so that a device may keep them in another layout. copyIn(),
  /// copyOut() and writable() must not be used for parameters afterwards.
  virtual void freezeParameters() {}
  /// Declares for which sequences and tokens later entries need results. A device may leave other rows as they are.
  /// `starts` are given only if the back end packs tokens. Called between entries.
  virtual void setActive(ActiveTokens /*active*/) {} // NOLINT(performance-unnecessary-value-param): overrides keep it

  /// Issue one instruction on queue 0.
  virtual void launch(const KernelLaunch &launch) = 0;
  virtual void call(const LibraryLaunch &launch) = 0;

  /// Registers a transfer before the first entry and returns its number. Ranks must add the transfers that they share
  /// in the same order. May allocate.
  virtual uint32_t addTransfer(const TransferShape &transfer) = 0;

  /// Starts a transfer after the work issued so far on queue 0 and after earlier transfers of its own queue. The
  /// buffers are in use until wait().
  virtual TransferTicket start(const TransferStart &request) = 0;
  /// Makes work issued later on queue 0 wait until the transfer has ended. Throws RankStopped if another rank failed.
  virtual void wait(TransferTicket ticket) = 0;
  /// Returns whether a started transfer is known to have ended. For measurements.
  virtual bool hasEnded(TransferTicket /*ticket*/) const { return false; }
  /// Advances started transfers without blocking; called between instructions.
  virtual void progress() {}

  /// Blocks the host until all work issued so far on queue 0 is done. For measurements.
  virtual void drain() {}

  /// Returns whether launch() and call() return when their work is done, so that host time is the rank's time.
  virtual bool isSynchronous() const { return false; }

  /// Marks the end of an entry's work.
  virtual void endTurn() {}
  /// Blocks the host until all entries but the last `behind` have ended; `behind` is 0 or 1.
  virtual void finishTurns(int /*behind*/) {}
};

/// The device that a rank uses on its host.
struct DevicePlace {
  int ordinal = 0;
  bool isShared = false; ///< ranks may share devices: ordinals wrap around at the number of devices
  /// The ordinal counts ranks of a launcher that may show each process only its own device, as `srun --gpus-per-task 1`
  /// does.
  bool isLauncherCount = false;
};

/// A rank's resources on the host.
struct RankHost {
  Communicator &communicator; ///< to the other ranks
  ThreadPool &pool;
  int spins; ///< polls before a waiting rank sleeps
  DevicePlace device = {.ordinal = communicator.rank()};
};

/// One rank's demand for a device.
struct DeviceDemand {
  int rank;
  DevicePlace device;
};

/// A plan's code for the devices of this process. Shared by its ranks; outlives their devices. For a plan of several
/// ranks, no device is used before open(), because a started driver does not survive a fork.
class Backend {
public:
  virtual ~Backend() = default;

  /// Returns the code level and its hardware: "x86-64-v4", "sm_90 (NVIDIA H200)".
  virtual std::string level() const = 0;

  /// Returns whether the prefill of a plan for generation takes the tokens of its sequences side by side, without
  /// padding, as ActiveTokens::starts tells.
  virtual bool packsTokens() const { return false; }
  /// Returns whether the prefill also takes sequences that decode one token, with the same bits as the entry decode.
  virtual bool mixesPrompts() const { return false; }

  /// Returns the host memory in bytes that a rank of the stage needs with `threads` threads.
  virtual uint64_t hostBytes(const pb::Stage &stage, int threads) const = 0;

  /// Returns the bytes that Device::allocatedBytes of a rank of the stage will count, up to whole pages.
  virtual uint64_t plannedBytes(const pb::Stage &stage, int threads) const { return hostBytes(stage, threads); }

  /// Checks the devices for ranks that will be forked from this process, so that errors appear before the fork. Returns
  /// a description of the devices, or an empty text for the CPU. Throws PlanError.
  virtual std::string requireDevices(std::span<const DeviceDemand>) const { return ""; }

  /// Allocates and zeroes the memory of a rank of `stage`. Throws PlanError if memory is lacking.
  virtual std::unique_ptr<Device> open(const pb::Stage &stage, const RankHost &host) = 0;
};

/// How products read the weights of a plan for generation.
enum class Weights {
  AsStored, ///< in the type of the plan
  Q8,       ///< as Q8Block, quantized once when the plan loads, except narrow ones; on CPUs
};

/// Makes the back end of the plan's target. `threads` per rank determine how library calls on the CPU are split. The
/// plan must outlive it. Throws PlanError if the plan's code does not run here, or has no products of these weights.
std::unique_ptr<Backend> loadBackend(const pb::Plan &plan, int threads, Weights weights = Weights::AsStored);

/// Throws PlanError if the back end of plans for cuda is not built.
void requireCudaBackend();

/// The function that libespalier_cuda.so exports: `Backend *espalierCudaBackend(const pb::Plan &)`. Throws as
/// loadBackend() does.
inline constexpr const char *cudaBackendSymbol = "espalierCudaBackend";

} // namespace espalier::rt
