// A loaded plan and, from it, one rank's program in flat arrays: the step path sees no protobuf, no
// name and no map.
#pragma once

#include "runtime/abi.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/mesh.h"
#include "runtime/plan_file.h"

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

constexpr int regionCount = pb::Region_ARRAYSIZE;
/// Operands that a launch or a library call can have; the verifier refuses more.
constexpr uint32_t maxBuffers = 64, maxScalars = 32;

/// "matmul at gpt2.yaml:31:7"; empty when the plan gives no such location.
std::string locationText(const pb::Plan &plan, uint32_t location);

/// A buffer of an instruction: an offset in a region of the running call.
struct PreparedBuffer {
  uint64_t offset;
  uint32_t region;
};

/// A scalar whose constant has the rank's coordinates in it already.
struct PreparedScalar {
  int64_t constant, step, microBatch, layer;
};

/// A collective: its number on the device and its places.
struct PreparedCollective {
  uint32_t number = 0;
  std::vector<PreparedBuffer> from, to;
};

struct PreparedInstruction {
  enum Kind : uint8_t { Launch, Call, Start, Wait } kind = Launch;
  bool accumulate = false, alwaysAdds = false;
  uint32_t location = 0;
  uint32_t firstBuffer = 0, buffers = 0;
  uint32_t firstScalar = 0, scalars = 0;
  uint32_t collective = 0; ///< of Start and Wait
  int64_t extent = 0, grain = 1;
  uint32_t kernel = 0; ///< index in Plan.kernels
};

/// Instructions [first, last) of the rank's array.
struct PreparedSubprogram {
  uint32_t first = 0, last = 0;
};

/// A call of the rank's stage. Subprogram numbers as in the plan: 0 means none.
struct PreparedCall {
  uint32_t layer = 0;
  uint32_t forward = 0, backward = 0, reduceGradients = 0, squaredNorm = 0, optimizer = 0, evaluate = 0;
  /// Arena offset of each region, per slot.
  std::vector<std::array<uint64_t, regionCount>> bases;
};

/// One rank's program. Indices of `subprograms` are those of the plan plus one.
struct RankProgram {
  int rank = 0, stage = 0;
  std::vector<PreparedSubprogram> subprograms;
  std::vector<PreparedInstruction> instructions;
  std::vector<PreparedBuffer> buffers;
  std::vector<PreparedScalar> scalars;
  std::vector<PreparedCollective> collectives;
  std::vector<PreparedCall> calls;
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

  /// The flat program of one rank; adds its collectives to `device`.
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
