// Where the parameters of a segment lie: for each one its local shard, and its offsets in the regions PARAMETERS,
// GRADIENTS and STATE of a call. Read off the localized joint function, so that it holds what propagation decided.
#pragma once

#include "compiler/import/run_config.h"
#include "compiler/partition/layout.h"
#include "planner/plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace espalier {

struct SegmentParameter {
  const ParameterDescription *description = nullptr;
  std::vector<int64_t> paddedShape; ///< global, with the vocabulary's padding
  Sharding sharding;
  Axes partialAxes; ///< over which accumulators are summed after the last micro-batch
  int64_t localElements = 0;
  int64_t heldElements = 0;  ///< localElements rounded up to whole ZeRO shares: what the regions hold
  int64_t stateElements = 0; ///< of one moment: a ZeRO share, or heldElements
  Axes shareAxes; ///< over which ZeRO shares lie: axes of samples and of their parts that do not split the parameter
  int64_t elementBytes = 4;
  int64_t replicas = 1; ///< ranks of a stage that hold the same elements of the gradient when it is summed
  uint64_t parameterOffset = 0, gradientOffset = 0, stateOffset = 0;
  bool isTiedHere = false; ///< storage of another segment of the same stage, which also updates it
};

struct SegmentLayout {
  std::string kind;
  std::vector<SegmentParameter> parameters;
  bool master = false; ///< an f32 master precedes the two moments in STATE
  /// Bytes of the regions; those of a segment that holds tied parameters of another one include the other's.
  uint64_t parameterBytes = 0, gradientBytes = 0, stateBytes = 0;

  const SegmentParameter &parameter(llvm::StringRef name) const;
};

/// One layout per segment of the module, which is localized and still has joint functions. With a single stage,
/// segments that share tied parameters share one region: offsets of the second continue those of the first.
std::vector<SegmentLayout> layOutSegments(mlir::ModuleOp module, const RunConfig &run, const planner::Plan &plan);

/// Name of the optimizer state's part: "w.master", "w.moment1", "w.moment2".
std::string stateName(llvm::StringRef parameter, llvm::StringRef part);

/// What a buffer of `bytes` takes of its region or of the arena, with `guard` bytes of a checked plan behind it.
inline uint64_t alignUp(uint64_t bytes, uint64_t guard) { return (bytes + 63) / 64 * 64 + guard; }

} // namespace espalier
