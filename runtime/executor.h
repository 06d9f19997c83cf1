// Runs one rank's schedule: actions bind the regions of a call to its place in the arena, and the
// call's subprogram goes through its instructions. Nothing is allocated after construction.
#pragma once

#include "runtime/abi.h"
#include "runtime/device/device.h"
#include "runtime/guards.h"
#include "runtime/program.h"

#include <array>
#include <optional>

namespace espalier::rt {

/// What the schedule leaves to its owner.
class StepClient {
public:
  virtual ~StepClient() = default;
  /// Writes micro-batch `microBatch` into the inputs of a slot; offsets are those of Stage.inputs.
  virtual void loadInputs(uint32_t microBatch, std::byte *inputs) = 0;
  /// Before this rank enters the sums over all ranks: all come here as often.
  virtual void beforeAgreement() {}
  /// After LossSum, TokenCount and SquaredNorm were summed over all ranks: sets GradientScale and
  /// Apply.
  virtual void updateScalars(Scalars &scalars) = 0;
};

/// Where a test makes a rank fail: before instruction `instruction` of the first subprogram of
/// action `action`.
struct Fault {
  int rank = 0;
  int64_t step = 0;
  uint32_t action = 0;
  uint32_t instruction = 0;
  bool crashes = false; ///< by a signal, as a bad address would; otherwise by an exception
};

/// What the rank is doing; read when it fails.
struct ExecutorPosition {
  int action = -1;      ///< index in the schedule
  int call = -1;        ///< index in the stage's calls
  int subprogram = -1;  ///< index in the plan's subprograms
  int instruction = -1; ///< index in that subprogram
  bool inEvaluation = false;
};

class Executor {
public:
  /// Prepares the program of `rank` on its device.
  Executor(const Program &program, int rank, Device &device);

  /// Runs the stage's schedule once. `step` is the number of optimizer steps begun before, from 0.
  void runStep(int64_t step, StepClient &client);

  /// Runs one micro-batch of the evaluation schedule; LossSum and TokenCount grow by it.
  void runEvaluation(int64_t step, StepClient &client);

  Scalars scalars() const;
  void setScalars(const Scalars &scalars);

  /// Sums LossSum, TokenCount and SquaredNorm over all ranks; the programs weight what several ranks
  /// compute alike.
  void sumScalars();

  /// Returns once every rank has called it.
  void barrier();

  const RankProgram &rankProgram() const { return program; }
  Device &device() const { return theDevice; }

  /// The failure of this rank, with the place where it stands.
  Failure describe(const std::string &message) const;

  std::optional<Fault> fault;

private:
  /// Tickets of one kind of transfer, by slot.
  struct Transfers {
    uint32_t link = 0;
    std::vector<Ticket> tickets;
  };
  struct Place {
    uint64_t base = 0, stride = 0, bytes = 0;
    uint64_t at(uint32_t slot) const { return base + slot * stride; }
  };

  void runActions(const google::protobuf::RepeatedPtrField<pb::Action> &actions, StepClient &client);
  void runAction(const pb::Action &action, StepClient &client);
  void loadInputs(uint32_t slot, StepClient &client);
  void startTransfer(const pb::Action &action);
  void agree(StepClient &client);
  void forEachCall(uint32_t PreparedCall::*subprogram, uint32_t slot, bool isReversed = false);
  void runSubprogram(const PreparedCall &call, uint32_t subprogram, uint32_t slot);
  void runInstruction(const PreparedInstruction &instruction);
  void fail() const;
  void launch(const PreparedInstruction &instruction);
  void callLibrary(const PreparedInstruction &instruction);
  void startCollective(const PreparedInstruction &instruction);
  void bindOperands(const PreparedInstruction &instruction);
  std::span<const uint64_t> resolve(std::span<const PreparedBuffer> buffers, std::span<uint64_t> places) const;

  const Program &source;
  Device &theDevice;
  RankProgram program;
  std::optional<Guards> guards; ///< of a checked plan
  uint64_t scalarsOffset = 0;
  Place inputs;
  std::array<Place, 4> streamPlaces; ///< receive forward, send forward, receive backward, send backward
  std::array<Transfers, 4> transfers;

  std::vector<Ticket> flights;    ///< by collective
  uint32_t agreement = 0;         ///< the collective of LossSum, TokenCount, SquaredNorm
  uint32_t meeting = 0;           ///< the one without buffers: only everybody's arrival
  std::vector<std::byte> staging; ///< a micro-batch on its way to the device

  // The running action, call and instruction.
  int64_t step = 0;
  uint32_t microBatch = 0, layer = 0;
  ExecutorPosition position;
  bool isFaultDue = false;
  const uint64_t *bases = nullptr;
  std::array<uint64_t, maxBuffers> places{}, morePlaces{};
  std::array<int64_t, maxScalars> values{};
};

} // namespace espalier::rt
