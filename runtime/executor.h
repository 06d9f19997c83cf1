// Runs the lists of one rank: a RUN binds the regions of its calls to their places and goes through their
// subprograms, START and WAIT move flights. Nothing is allocated once every entry has run.
#pragma once

#include "runtime/abi.h"
#include "runtime/device/device.h"
#include "runtime/guards.h"
#include "runtime/launch/status_page.h"
#include "runtime/program.h"
#include "runtime/trace.h"

#include <array>
#include <optional>

namespace espalier::rt {

/// Where a test makes a rank fail: before instruction `instruction` of the first subprogram of
/// action `action`, or before the action itself where that runs none.
struct Fault {
  enum Kind {
    Exception,
    Crash,  ///< by a bad address
    Kill,   ///< its process, as the system does that has no more memory
    Stop,   ///< its process does nothing any more
    Memory, ///< the system refuses more
    Sleep,  ///< no failure: it is late by half a second
  };
  int rank = 0;
  int64_t step = 0;
  uint32_t action = 0; ///< counted through blocks and rounds
  uint32_t instruction = 0;
  Kind kind = Exception;
};

class Executor {
public:
  /// Prepares the program of `rank` on its device. What it does shows on `page`, which outlives it; without one nobody
  /// else sees it.
  Executor(const Program &program, int rank, Device &device, StatusPage *page = nullptr);

  /// Issues the stage's list of an entry of the plan.
  void run(uint32_t entry);

  /// Host memory of one of the stage's exchanges, in a slot of its lifetime: of the coming entry for what the host
  /// fills, of the last one for what it reads. Returns once the entries that used these bytes have ended; the memory
  /// may be used until the next run().
  std::span<std::byte> exchange(uint32_t index, uint32_t slot = 0);

  /// Where a buffer of a call lies on this rank, in the arena of its memory: its own part, in a slot of its lifetime.
  uint64_t address(uint32_t call, const pb::Buffer &buffer, uint32_t slot = 0) const;

  /// Returns once every rank has called it.
  void meet();

  const RankProgram &rankProgram() const { return program; }
  Device &device() const { return theDevice; }

  /// The failure of this rank, with the place where it stands.
  Failure describe(const std::string &message) const;

  int64_t step = -1; ///< that is at hand, from 0, as reports of failures say; -1: none to speak of
  std::optional<Fault> fault;
  TraceRecorder *trace = nullptr; ///< takes note of the next entry; all ranks have one, or none (null)

private:
  /// A flight that no WAIT has met.
  struct OpenFlight {
    uint32_t call, microBatch;
    FlightTicket ticket;
    size_t event; ///< of the trace
  };

  void runBlock(const PreparedBlock &block);
  void runAction(const PreparedAction &action);
  void runCalls(const PreparedAction &action);
  void runSubprogram(const PreparedCall &call, uint32_t subprogram);
  void runInstruction(const PreparedInstruction &instruction);
  void launch(const PreparedInstruction &instruction);
  void callLibrary(const PreparedInstruction &instruction);
  void start(uint32_t transfer, uint32_t call);
  void wait(uint32_t transfer, uint32_t call);
  void fail() const;
  size_t beginEvent(TraceEvent::Kind kind, uint32_t subject, uint32_t call);
  void endEvent(size_t event);
  void endFlights();

  void setSlots(const PreparedCall &call, Range slots);
  void bind(const PreparedCall &call);
  void bindOperands(const PreparedInstruction &instruction);
  std::span<const Place> resolve(Range buffers, std::span<Place> to) const;

  const Program &source;
  Device &theDevice;
  RankProgram program;
  std::optional<Guards> guards;              ///< of a checked plan
  std::vector<std::vector<OpenFlight>> open; ///< by transfer
  uint32_t meeting = 0;                      ///< the transfer without buffers: only everybody's arrival
  uint64_t turns = 0;                        ///< entries run

  // The running action, call and instruction.
  uint32_t round = 0, advance = 0, microBatch = 0;
  int32_t layer = 0;
  StatusPage ownPage;
  StatusPage &page;
  bool isFaultDue = false;
  std::vector<uint32_t> slots; ///< by lifetime
  std::vector<char> isFirst;   ///< by bucket
  std::array<Place, maxRegions> bases{};
  std::array<Place, maxBuffers> places{}, morePlaces{};
  std::array<int64_t, maxScalars> values{};
};

} // namespace espalier::rt
