// All that the executor knows of hardware. A device holds one rank's memory, runs its kernels and moves its bytes.
// Places are offsets in the rank's two memories: outside of device/ and comm/ nobody sees an address. Queue 0 computes:
// work is issued in order and done in that order. Every other queue runs its flights one after the other.
#pragma once

#include "runtime/comm/comm.h"
#include "runtime/plan.pb.h"
#include "runtime/thread_pool.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// Where bytes begin: an offset in the arena of one memory.
struct Place {
  uint64_t offset = 0;
  pb::Memory memory = pb::DEVICE;
};

/// One launch of a generated kernel.
struct KernelLaunch {
  uint32_t kernel;                ///< index in Plan.kernels
  std::span<const Place> buffers; ///< in the order of the launch
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

/// A transfer as this rank takes part in it.
struct TransferShape {
  pb::Transfer::Kind kind = pb::Transfer::COPY;
  uint32_t queue = 0;
  std::vector<int> members = {};  ///< of a collective: global ranks in ascending order, this one among them
  CollectiveShape shape = {};     ///< of a collective
  int peer = 0;                   ///< of SEND and RECEIVE
  uint32_t line = 0;              ///< of SEND and RECEIVE
  std::vector<size_t> bytes = {}; ///< of SEND, RECEIVE and COPY, per buffer
};

/// A flight that begins: one place per buffer of the transfer.
struct FlightStart {
  uint32_t transfer; ///< as addTransfer() numbered it
  std::span<const Place> from, to;
};

/// A flight that was started: its queue and what the device knows it by there.
struct FlightTicket {
  uint32_t queue = 0;
  uint64_t number = 0;
};

/// One rank's end of the hardware. Used by one thread.
class Device {
public:
  virtual ~Device() = default;

  /// Bytes taken for this rank: the arenas and what library calls work in.
  virtual uint64_t allocatedBytes() const = 0;

  /// What is taken of the device beside the plan's, in words; empty where it is nothing.
  virtual std::string describeMemory() const { return ""; }

  /// Between entries: copies from the host to an offset of the device's memory. `from` may be changed when it returns;
  /// work issued later sees the bytes.
  virtual void copyIn(uint64_t to, const void *from, size_t bytes) = 0;
  /// Between entries: copies to the host what all work issued before leaves there; the bytes are there when it returns.
  virtual void copyOut(void *to, uint64_t from, size_t bytes) = 0;
  /// Between entries: sets bytes to `value`.
  virtual void fill(uint64_t to, int value, size_t bytes) = 0;
  /// The address of an offset of the host's memory.
  virtual std::byte *host(uint64_t offset) = 0;

  virtual void launch(const KernelLaunch &launch) = 0;
  virtual void call(const LibraryLaunch &launch) = 0;

  /// Before the first entry: makes a transfer known and numbers it. Every rank adds those that it shares with another
  /// one in the same order. May allocate.
  virtual uint32_t addTransfer(const TransferShape &transfer) = 0;

  /// Starts a flight behind the work issued so far on queue 0, and behind the flights started before on its own queue.
  /// Its places are read, or written, until its wait.
  virtual FlightTicket start(const FlightStart &flight) = 0;
  /// Holds back what is issued later on queue 0 until the flight has ended. Throws RankStopped when another rank
  /// failed.
  virtual void wait(FlightTicket ticket) = 0;
  /// Whether an open flight is known to have ended. For measurements.
  virtual bool hasEnded(FlightTicket /*ticket*/) const { return false; }
  /// Does for open flights what can be done now; called between instructions.
  virtual void progress() {}

  /// Holds the host until all work issued so far on queue 0 is done. For measurements.
  virtual void drain() {}

  /// All work of an entry was issued.
  virtual void endTurn() {}
  /// Holds the host until the work of all entries but the last `behind` has ended: 0 or 1.
  virtual void finishTurns(int /*behind*/) {}
};

/// Which device of its host a rank takes.
struct DevicePlace {
  int ordinal = 0;
  bool isShared = false; ///< ranks may share one: where the host shows fewer, they begin again with the first
  /// Counted by a launcher that may show each of its processes one device alone, as `srun --gpus-per-task 1` does.
  bool isLauncherCount = false;
};

/// What a rank has on the host.
struct RankHost {
  Communicator &communicator; ///< to the other ranks
  ThreadPool &pool;
  int spins; ///< polls before a waiting rank sleeps
  DevicePlace device = {.ordinal = communicator.rank()};
};

/// What is asked of a host for one of its ranks.
struct DeviceDemand {
  int rank;
  DevicePlace device;
};

/// A plan's code for the devices of this process; shared by its ranks and outlives their devices. Of a plan of several
/// ranks no device is touched before open(): a driver that was started does not survive a fork.
class Backend {
public:
  virtual ~Backend() = default;

  /// The level of code and the hardware it runs on: "x86-64-v4", "sm_90 (NVIDIA H200)".
  virtual std::string level() const = 0;

  /// Host memory that a rank of the stage takes with `threads` threads.
  virtual uint64_t hostBytes(const pb::Stage &stage, int threads) const = 0;

  /// For ranks that will be processes of this host, forked from this one: refuses what they would be refused, before
  /// there are any. Returns what they run on, in words; empty where it goes without saying. Throws PlanError.
  virtual std::string requireDevices(std::span<const DeviceDemand>) const { return ""; }

  /// Takes and zeroes the memory of a rank. `stage` is the rank's. Throws PlanError where it cannot be had.
  virtual std::unique_ptr<Device> open(const pb::Stage &stage, const RankHost &host) = 0;
};

/// The back end of the plan's target. `threads`: of each rank, for which the calls of a CPU are cut. Throws PlanError
/// where the plan's code does not run here. The plan outlives it.
std::unique_ptr<Backend> loadBackend(const pb::Plan &plan, int threads);

/// What libespalier_cuda.so exports: `Backend *espalierCudaBackend(const pb::Plan &)`, which throws as loadBackend
/// does.
inline constexpr const char *cudaBackendSymbol = "espalierCudaBackend";

} // namespace espalier::rt
