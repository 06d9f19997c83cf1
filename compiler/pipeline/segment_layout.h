// Where the parameters of a segment lie: for each one its local shard, and the buckets that hold them side by side in
// the regions parameters, gradients and state of a call. Read off the localized joint function, so that it holds what
// propagation decided.
#pragma once

#include "compiler/import/run_config.h"
#include "compiler/partition/layout.h"
#include "planner/plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace espalier {

/// Parameters begin at multiples of so many elements in their bucket, and shares are multiples of as many.
inline constexpr int64_t bucketAlignment = 128;

struct SegmentParameter {
  const ParameterDescription *description = nullptr;
  std::vector<int64_t> paddedShape; ///< global, with the vocabulary's padding
  Sharding sharding;
  Axes partialAxes; ///< over which gradients are summed after the last micro-batch
  Axes shareAxes;   ///< over which ZeRO shares lie: axes of samples and of their parts that do not split the parameter
  int64_t localElements = 0;
  int64_t elementBytes = 4;
  int64_t replicas = 1; ///< ranks of a stage that hold the same elements of the gradient when it is summed
  size_t bucket = 0;    ///< in SegmentLayout::buckets
  int64_t first = 0;    ///< its first element there
};

/// Parameters that are reduced, updated and gathered as one: equal but for their shapes.
struct SegmentBucket {
  std::string name;               ///< "block.decayed"
  uint32_t number = 0;            ///< among all buckets of the plan; a tied one has its owner's
  std::vector<size_t> parameters; ///< in SegmentLayout::parameters
  int64_t elements = 0;           ///< on one rank, padded to whole shares
  int64_t partElements = 0;       ///< of a ZeRO share, or all
  int64_t elementBytes = 4;       ///< of the stored parameters
  Axes partialAxes, shareAxes;    ///< as of its parameters; those of pipeline stages are `holders`
  std::vector<uint32_t> holders;  ///< stages of a bucket that is tied across stages
  bool decays = false;
  double normWeight = 1; ///< what squares of its gradient count in the norm
  uint64_t storedOffset = 0, gradientOffset = 0, stateOffset = 0;
  bool isTied = false;     ///< of another segment, which owns it
  bool isTiedHere = false; ///< that segment lies on the same stage: it has the storage and does the update
};

struct SegmentLayout {
  std::string kind;
  std::vector<SegmentParameter> parameters;
  std::vector<SegmentBucket> buckets; ///< tied ones first, so that they lie alike in every holder
  bool master = false;                ///< an f32 master precedes the two moments in the state
  /// Bytes of the regions; those of a segment that holds tied parameters of another one include the other's.
  uint64_t parameterBytes = 0, gradientBytes = 0, stateBytes = 0;

  const SegmentParameter &parameter(llvm::StringRef name) const;
  /// The bucket of that name.
  const SegmentBucket &bucket(llvm::StringRef name) const;
  const SegmentBucket &bucketOf(const SegmentParameter &parameter) const { return buckets[parameter.bucket]; }
  /// Bytes from the region's start to a parameter and to its gradient.
  uint64_t parameterOffset(const SegmentParameter &parameter) const;
  uint64_t gradientOffset(const SegmentParameter &parameter) const;
};

/// One layout per segment of the module, which is localized and still has joint functions. Segments
/// that share tied parameters and lie on one stage share one region: offsets of the second continue those of the first.
std::vector<SegmentLayout> layOutSegments(mlir::ModuleOp module, const RunConfig &run, const planner::Plan &plan);

/// Parts of the optimizer's state, in their order in the region: of "block.decayed" the first is
/// "block.decayed.master", or that of "moment1" without masters.
std::vector<std::string> stateParts(const SegmentLayout &segment);

/// What a buffer of `bytes` takes of its region or of the arena, with `guard` bytes of a checked plan behind it.
inline uint64_t alignUp(uint64_t bytes, uint64_t guard) { return (bytes + 63) / 64 * 64 + guard; }

} // namespace espalier
