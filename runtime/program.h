// A loaded plan and, from it, one rank's program in flat arrays: the step path sees no protobuf, no
// name and no map.
#pragma once

#include "runtime/abi.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/mesh.h"
#include "runtime/plan_file.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// Operands that a launch or a library call, and buffers that a transfer can have; the verifier refuses more.
constexpr uint32_t maxBuffers = 64, maxScalars = 32;
/// Regions that a plan can have; the verifier refuses more.
constexpr uint32_t maxRegions = 64;

/// "matmul at gpt2.yaml:31:7"; empty when the plan gives no such location.
std::string locationText(const pb::Plan &plan, uint32_t location);

/// What a role, an entry, a region or an exchange with a name is to the trainer: its number, if the plan has one.
std::optional<uint32_t> findEntry(const pb::Plan &plan, std::string_view name);
std::optional<uint32_t> findRegion(const pb::Plan &plan, std::string_view name);
std::optional<uint32_t> findExchange(const pb::Stage &stage, std::string_view name);

/// Types of a library call's buffers: those of their values.
inline std::vector<pb::DataType> typesOf(const pb::Plan &plan, const pb::LibraryCall &call) {
  std::vector<pb::DataType> types;
  for (const pb::Buffer &buffer : call.buffers())
    types.push_back(plan.values(buffer.value()).type());
  return types;
}

/// A buffer of an instruction or transfer: where it begins in its region, the rank's own part and slice chosen.
struct PreparedBuffer {
  uint64_t offset;
  uint32_t region;
  int64_t microBatch, layer; ///< bytes of a slice per unit of these
};

/// An operand of a kernel whose constant has coordinates and seed in it already. With `first` it is whether the RUN
/// names bucket `first` - 1.
struct PreparedScalar {
  int64_t constant, microBatch, layer;
  uint32_t first;
};

/// Elements [first, first + count) of one of the rank's arrays.
struct Range {
  uint32_t first = 0, count = 0;
};

struct PreparedInstruction {
  enum Kind : uint8_t { Launch, Call, Start, Wait } kind = Launch;
  bool adds = false;        ///< a call: to what its destination holds, unless `unlessFirst` says otherwise
  uint32_t unlessFirst = 0; ///< a call: above 0 it overwrites where the RUN names bucket `unlessFirst` - 1
  uint32_t number = 0;      ///< kernel of a launch, transfer of a start or wait
  Range buffers, scalars;
  int64_t extent = 0, grain = 1;
};

/// A transfer on this rank; `number` is the device's. Those in which the rank takes no part have none.
struct PreparedTransfer {
  std::optional<uint32_t> number;
  Range from, to; ///< of the buffers
};

/// Room of a region: slot i begins at offsets[i] or, where there is one offset, at offsets[0] + i * stride.
struct PreparedPlace {
  pb::Memory memory = pb::DEVICE;
  uint32_t lifetime = 0;
  uint64_t stride = 0;
  uint64_t turnBytes = 0; ///< from the first copy of an exchanged place to the second; 0 for others
  std::vector<uint64_t> offsets = {};

  uint64_t at(uint32_t slot, uint32_t turn) const {
    return (offsets.size() == 1 ? offsets[0] + slot * stride : offsets[slot]) + turn * turnBytes;
  }
};

struct PreparedBinding {
  uint32_t region, place;
  uint64_t offset;
};

/// A call of the rank's stage.
struct PreparedCall {
  int32_t layer = 0;
  uint32_t chunk = 0;
  Range bindings;
  std::vector<uint32_t> programs; ///< by role: subprogram + 1, 0 for none
};

struct PreparedFlight {
  uint32_t transfer, call, microBatch;
  Range slots;
};

struct PreparedAction {
  enum Kind : uint8_t { Run, Start, Wait } kind = Run;
  Range flights; ///< of Start and Wait
  // Of Run:
  bool backwards = false;
  uint32_t role = 0, microBatch = 0;
  Range calls, slots, first;
};

struct PreparedBlock {
  uint32_t rounds = 1, advance = 0;
  Range actions;
};

/// One rank's program.
struct RankProgram {
  int rank = 0, stage = 0;
  std::vector<Range> subprograms; ///< instructions, by the plan's subprograms
  std::vector<PreparedInstruction> instructions;
  std::vector<PreparedBuffer> buffers;
  std::vector<PreparedScalar> scalars;
  std::vector<PreparedTransfer> transfers; ///< by the plan's transfers
  std::vector<PreparedPlace> places;       ///< by the stage's places
  std::vector<PreparedBinding> bindings;
  std::vector<PreparedCall> calls;
  std::vector<pb::Lifetime> lifetimes;
  std::vector<std::vector<uint32_t>> chunkLifetimes; ///< by chunk: lifetimes whose slots RUNs and flights say
  std::vector<Range> entries;                        ///< blocks, by the plan's entries
  std::vector<PreparedBlock> blocks;
  std::vector<PreparedAction> actions;
  std::vector<PreparedFlight> flights;
  std::vector<uint32_t> slots;   ///< of runs and flights
  std::vector<uint32_t> buckets; ///< that runs name as first
};

/// A verified plan with its code loaded; shared by the ranks of a process.
class Program {
public:
  /// Verifies the plan and loads its code for `threads` threads a rank, as threadsPerRank() counts them. Throws
  /// PlanError with every error of the verifier.
  explicit Program(pb::Plan plan, int threads = 0);
  Program(const Program &) = delete;

  const pb::Plan &plan() const { return thePlan; }
  const Mesh &mesh() const { return theMesh; }
  Backend &backend() const { return *theBackend; }

  /// The flat program of one rank; adds its transfers to `device`.
  RankProgram prepare(int rank, Device &device) const;

private:
  pb::Plan thePlan;
  Mesh theMesh;
  std::unique_ptr<Backend> theBackend;
};

/// Threads of each of `ranks` ranks in this process: `wanted`, or an equal part of the cores if it is
/// 0, at least 1.
int threadsPerRank(int wanted, int ranks);

/// Number of the data replica that a rank belongs to, of dp * ep: which samples it reads.
int dataReplica(const Mesh &mesh, int rank);
int dataReplicas(const Mesh &mesh);

} // namespace espalier::rt
