// A loaded plan, and the program of one rank in flat arrays, so that the step path uses no protobuf, names or maps.
#pragma once

#include "format/abi.h"
#include "format/mesh.h"
#include "format/plan_file.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The most operands of a launch or library call, and the most buffers of a transfer; checked by the verifier.
constexpr uint32_t maxBuffers = 64, maxScalars = 32;
/// The most regions of a plan; checked by the verifier.
constexpr uint32_t maxRegions = 64;

/// Returns "matmul at gpt2.yaml:31:7"; empty if the plan does not contain the location.
std::string locationText(const pb::Plan &plan, uint32_t location);

/// Return the number of an entry, region or exchange by its name, or nothing if the plan has none of this name.
std::optional<uint32_t> findEntry(const pb::Plan &plan, std::string_view name);
std::optional<uint32_t> findRegion(const pb::Plan &plan, std::string_view name);
std::optional<uint32_t> findExchange(const pb::Stage &stage, std::string_view name);

/// Returns the element types of a library call's buffers.
inline std::vector<pb::DataType> typesOf(const pb::Plan &plan, const pb::LibraryCall &call) {
  std::vector<pb::DataType> types;
  for (const pb::Buffer &buffer : call.buffers())
    types.push_back(plan.values(buffer.value()).type());
  return types;
}

/// The start of a buffer in its region, specialized to the rank's shard and slice.
struct PreparedBuffer {
  uint64_t offset;
  uint32_t region;
  int64_t microBatch, layer; ///< stride in bytes per micro-batch and per layer
};

/// A kernel operand with coordinates and seed substituted. If `first` is above 0, the value is whether the RUN lists
/// bucket `first` - 1 as first.
struct PreparedScalar {
  int64_t constant, microBatch, layer;
  uint32_t first;
};

/// Elements [first, first + count) of an array in RankProgram.
struct Range {
  uint32_t first = 0, count = 0;
};

/// An instruction of a subprogram.
struct PreparedInstruction {
  enum Kind : uint8_t { Launch, Call, Start, Wait } kind = Launch;
  bool adds = false;        ///< a call accumulates into its destination, unless `unlessFirst` applies
  uint32_t unlessFirst = 0; ///< a call: if above 0, it overwrites if the RUN lists bucket `unlessFirst` - 1 as first
  uint32_t number = 0;      ///< kernel of a launch, or transfer of a start or wait
  Range buffers, scalars;
  int64_t extent = 0, grain = 1;
};

/// A transfer on this rank. `number` is the device's; not set if the rank takes no part.
struct PreparedTransfer {
  std::optional<uint32_t> number;
  Range from, to; ///< in RankProgram::buffers
};

/// The allocation of a region. Ring slot i begins at offsets[i] or, with one offset, at offsets[0] + i * stride.
struct PreparedPlace {
  pb::Memory memory = pb::DEVICE;
  uint32_t lifetime = 0;
  uint64_t stride = 0;
  uint64_t turnBytes = 0; ///< offset of the second copy of a double-buffered exchange; 0 for other allocations
  std::vector<uint64_t> offsets = {};

  uint64_t at(uint32_t slot, uint32_t turn) const {
    return (offsets.size() == 1 ? offsets[0] + slot * stride : offsets[slot]) + turn * turnBytes;
  }
};

/// A region bound to an allocation.
struct PreparedBinding {
  uint32_t region, place;
  uint64_t offset;
};

/// A layer call of the rank's stage.
struct PreparedLayerCall {
  int32_t layer = 0;
  uint32_t chunk = 0;
  Range bindings;
  std::vector<uint32_t> programs; ///< indexed by role: subprogram + 1, 0 for none
};

/// A transfer of a layer call and micro-batch that an action starts or waits for.
struct TransferInstance {
  uint32_t transfer, call, microBatch;
  Range slots;
};

/// An action of an instruction stream.
struct PreparedAction {
  enum Kind : uint8_t { Run, Start, Wait } kind = Run;
  Range instances; ///< for Start and Wait
  // Fields of Run:
  bool backwards = false;
  uint32_t role = 0, microBatch = 0;
  Range calls, slots, first;
};

/// A block of actions that is repeated `rounds` times.
struct PreparedBlock {
  uint32_t rounds = 1, advance = 0;
  Range actions;
};

/// The program of one rank.
struct RankProgram {
  int rank = 0, stage = 0;
  std::vector<Range> subprograms; ///< instructions, indexed by the plan's subprograms
  std::vector<PreparedInstruction> instructions;
  std::vector<PreparedBuffer> buffers;
  std::vector<PreparedScalar> scalars;
  std::vector<PreparedTransfer> transfers; ///< indexed by the plan's transfers
  std::vector<PreparedPlace> places;       ///< indexed by the stage's allocations
  std::vector<PreparedBinding> bindings;
  std::vector<PreparedLayerCall> calls;
  std::vector<pb::Lifetime> lifetimes;
  std::vector<std::vector<uint32_t>> chunkLifetimes; ///< per chunk: the live ranges for which RUNs and transfers give
                                                     ///< slots
  std::vector<Range> entries;                        ///< blocks, indexed by the plan's entries
  std::vector<PreparedBlock> blocks;
  std::vector<PreparedAction> actions;
  std::vector<TransferInstance> instances;
  std::vector<uint32_t> slots;   ///< of RUNs and transfers
  std::vector<uint32_t> buckets; ///< buckets that RUNs list as first
};

/// A verified plan with its code loaded. Shared by the ranks of a process.
class Program {
public:
  /// Verifies the plan and loads its code for `threads` threads per rank, as counted by threadsPerRank(). Throws
  /// PlanError with all errors of the verifier.
  explicit Program(pb::Plan plan, int threads = 0, Weights weights = Weights::AsStored);
  Program(const Program &) = delete;

  const pb::Plan &plan() const { return thePlan; }
  const Mesh &mesh() const { return theMesh; }
  Backend &backend() const { return *theBackend; }

  /// Returns the program of one rank and registers its transfers on `device`.
  RankProgram prepare(int rank, Device &device) const;

private:
  pb::Plan thePlan;
  Mesh theMesh;
  std::unique_ptr<Backend> theBackend;
};

/// Returns the threads of each of `ranks` ranks in this process: `wanted`, or if 0 an equal share of the cores, at
/// least 1.
int threadsPerRank(int wanted, int ranks);

/// Returns the data replica of a rank, of dp * ep, which determines the samples that it reads.
int dataReplica(const Mesh &mesh, int rank);
int dataReplicas(const Mesh &mesh);

} // namespace espalier::rt
