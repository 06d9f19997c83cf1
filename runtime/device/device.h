// All that the executor knows of hardware. A device holds one rank's memory, runs its kernels and moves its bytes.
// Places are offsets in the rank's arena: outside of device/ and comm/ nobody sees an address. Work is issued in order
// and done in that order; the host waits for it in copyOut alone.
#pragma once

#include "runtime/comm/comm.h"
#include "runtime/plan.pb.h"
#include "runtime/thread_pool.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace espalier::rt {

/// One launch of a generated kernel.
struct KernelLaunch {
  uint32_t kernel;                   ///< index in Plan.kernels
  std::span<const uint64_t> buffers; ///< places, in the order of the launch
  std::span<const int64_t> scalars;
  int64_t extent, grain;
};

/// One execution of a library call of the plan.
struct LibraryLaunch {
  uint32_t subprogram, instruction; ///< indices in the plan
  std::span<const uint64_t> buffers;
  std::span<const int64_t> scalars;
  bool accumulate; ///< adds to the destination instead of overwriting it
  int64_t step;    ///< optimizer steps done, for random bits
};

/// One rank's end of the hardware. Used by one thread.
class Device {
public:
  virtual ~Device() = default;

  /// Bytes taken for this rank: the arena and what library calls work in.
  virtual uint64_t allocatedBytes() const = 0;

  /// Copies from the host. `from` may be changed when it returns; work issued later sees the bytes.
  virtual void copyIn(uint64_t to, const void *from, size_t bytes) = 0;
  /// Copies to the host what all work issued before leaves there; the bytes are there when it returns.
  virtual void copyOut(void *to, uint64_t from, size_t bytes) = 0;
  /// Sets bytes to `value`.
  virtual void fill(uint64_t to, int value, size_t bytes) = 0;

  virtual void launch(const KernelLaunch &launch) = 0;
  virtual void call(const LibraryLaunch &launch) = 0;

  /// Before the first step: a collective of this rank with `members`, global ranks in ascending order, this one among
  /// them. Every member adds the same ones in the same order. May allocate.
  virtual uint32_t addCollective(std::span<const int> members, const CollectiveShape &shape) = 0;
  /// Before the first step: a stream to or from `peer`. May allocate.
  virtual uint32_t openSend(int peer, Stream stream) = 0;
  virtual uint32_t openReceive(int peer, Stream stream) = 0;

  /// Starts a transfer behind the work issued so far; a collective has one place per buffer of its shape, and is not
  /// started again before its wait.
  virtual Ticket startCollective(uint32_t collective, std::span<const uint64_t> from, std::span<const uint64_t> to) = 0;
  virtual Ticket startSend(uint32_t link, uint64_t from, size_t bytes) = 0;
  virtual Ticket startReceive(uint32_t link, uint64_t to, size_t bytes) = 0;
  /// Holds back what is issued later until the transfer is done. Throws RankStopped when another rank failed.
  virtual void wait(Ticket &ticket) = 0;
};

/// What a rank has on the host.
struct RankHost {
  Communicator &communicator; ///< to the other ranks
  ThreadPool &pool;
  int spins; ///< polls before a waiting rank sleeps
};

/// A plan's code, loaded for the devices of this process; shared by its ranks and outlives their devices.
class Backend {
public:
  virtual ~Backend() = default;

  /// The level of code and the hardware it runs on: "x86-64-v4", "sm_90 (NVIDIA H200)".
  virtual std::string level() const = 0;

  /// Host memory that a rank of the stage takes with `threads` threads; 0 where devices have memory of their own.
  virtual uint64_t hostBytes(const pb::Stage &, int /*threads*/) const { return 0; }

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
