// Executes the instruction streams of one rank. A RUN binds the regions of its layer calls to allocations and executes
// their subprograms. START and WAIT handle transfers. Nothing is allocated after every entry has run once.
#pragma once

#include "format/abi.h"
#include "runtime/device/device.h"
#include "runtime/guards.h"
#include "runtime/launch/rank_status.h"
#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/trace.h"

#include <array>
#include <optional>

namespace espalier::rt {

/// A failure injected by a test: before instruction `instruction` of the first subprogram of action `action`, or before
/// the action itself if it runs no subprogram.
struct Fault {
  enum Kind {
    Exception,
    Crash,  ///< access of a bad address
    Kill,   ///< SIGKILL, as by the kernel's out-of-memory killer
    Stop,   ///< the process stops running
    Memory, ///< an allocation fails
    Sleep,  ///< no failure: a delay of half a second
  };
  int rank = 0;
  int64_t step = 0;    ///< -1: every step
  uint32_t action = 0; ///< counted across blocks and rounds
  uint32_t instruction = 0;
  Kind kind = Exception;
};

/// Executes the program of one rank.
class Executor {
public:
  /// Prepares the program of `rank` on its device. The status is written to `status`, which must outlive this object.
  /// If null, the status is private.
  Executor(const Program &program, int rank, Device &device, RankStatus *status = nullptr);

  /// Issues the stage's instruction stream of an entry.
  void run(uint32_t entry);

  /// Returns the host buffer of one of the stage's exchanges, in a ring slot of its live range. An input buffer belongs
  /// to the coming entry, an output buffer to the last one. Waits for the entries that used its bytes. Valid until the
  /// next run().
  std::span<std::byte> exchange(uint32_t index, uint32_t slot = 0);

  /// Returns the arena offset of this rank's shard of a call's buffer, in a ring slot of its live range.
  uint64_t address(uint32_t call, const pb::Buffer &buffer, uint32_t slot = 0) const;

  /// A barrier of all ranks.
  void barrier();

  const RankProgram &rankProgram() const { return program; }
  Device &device() const { return theDevice; }

  /// Returns what the rank publishes about itself.
  RankStatus &shown() { return status; }
  /// Publishes the slowest ranks in the rank's status.
  void showSlow(std::span<const SlowAtEnd> ranks);

  /// Returns this rank's failure with its current position.
  Failure describe(const std::string &message) const;

  int64_t step = -1; ///< current step for failure reports, counted from 0; -1: none
  /// Seconds of all entries so far without the waits for transfers. Of no meaning unless the device is synchronous.
  double computeSeconds = 0;
  std::optional<Fault> fault;
  TraceRecorder *trace = nullptr; ///< records the next entry; set on all ranks or on none

private:
  /// An in-flight transfer for which no WAIT has run.
  struct InFlightTransfer {
    uint32_t call, microBatch;
    TransferTicket ticket;
    size_t event; ///< index in the trace
  };

  void runBlock(const PreparedBlock &block);
  void runAction(const PreparedAction &action);
  void runCalls(const PreparedAction &action);
  void runSubprogram(const PreparedLayerCall &call, uint32_t subprogram);
  void runInstruction(const PreparedInstruction &instruction);
  void launch(const PreparedInstruction &instruction);
  void callLibrary(const PreparedInstruction &instruction);
  void start(uint32_t transfer, uint32_t call);
  void wait(uint32_t transfer, uint32_t call);
  void fail() const;
  size_t beginEvent(TraceEvent::Kind kind, uint32_t subject, uint32_t call);
  void endEvent(size_t event);
  void endTransfers();

  void setSlots(const PreparedLayerCall &call, Range slots);
  void bind(const PreparedLayerCall &call);
  void bindOperands(const PreparedInstruction &instruction);
  std::span<const Place> resolve(Range buffers, std::span<Place> to) const;

  const Program &source;
  Device &theDevice;
  RankProgram program;
  std::optional<Guards> guards;                    ///< set if the plan is checked
  std::vector<std::vector<InFlightTransfer>> open; ///< indexed by transfer
  uint32_t barrierTransfer = 0;                    ///< the transfer without buffers, used as a barrier
  uint64_t turns = 0;                              ///< entries run

  // The running action, call and instruction.
  uint32_t round = 0, advance = 0, microBatch = 0;
  int32_t layer = 0;
  RankStatus ownStatus;
  RankStatus &status;
  bool isFaultDue = false;
  std::vector<uint32_t> slots; ///< indexed by live range
  std::vector<char> isFirst;   ///< indexed by bucket
  std::array<Place, maxRegions> bases{};
  std::array<Place, maxBuffers> places{}, morePlaces{};
  std::array<int64_t, maxScalars> values{};
};

} // namespace espalier::rt
