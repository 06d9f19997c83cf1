// Where the parameters of a segment lie: for each one its local shard, and the buckets that hold them side by side in
// the regions parameters, gradients and state of a call: exec.segment, exec.bucket and exec.parameter as plain data.
#pragma once

#include "compiler/import/model_description.h"
#include "compiler/partition/layout.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace espalier {

/// Parameters begin at multiples of so many elements in their bucket, and shares are multiples of as many.
inline constexpr int64_t bucketAlignment = 128;

struct SegmentParameter {
  std::string name;                 ///< local to the segment kind
  std::vector<std::string> dims;    ///< names of its dimensions
  std::vector<int64_t> shape;       ///< global
  std::vector<int64_t> paddedShape; ///< with the vocabulary's padding
  Sharding sharding;
  Initializer initializer;
  std::string tiedTo;          ///< "segment.parameter" whose storage it shares, or empty
  mlir::LocationAttr location; ///< its line in the model file
  int64_t localElements = 0;
  size_t bucket = 0; ///< in SegmentLayout::buckets
  int64_t first = 0; ///< its first element there
};

/// Parameters that are reduced, updated and gathered as one: equal but for their shapes.
struct SegmentBucket {
  std::string name;               ///< "block.decayed"
  uint32_t number = 0;            ///< among all buckets of the plan; a tied one has its owner's
  std::vector<size_t> parameters; ///< in SegmentLayout::parameters
  int64_t elements = 0;           ///< on one rank, padded to whole shares
  int64_t partElements = 0;       ///< of a ZeRO share, or all
  mlir::Type stored;              ///< type of the stored parameters
  int64_t elementBytes = 4;       ///< of it
  Axes partialAxes, shareAxes;    ///< as of its parameters; those of pipeline stages are `holders`
  std::vector<uint32_t> holders;  ///< stages of a bucket that is tied across stages
  bool decays = false;
  double normWeight = 1; ///< what squares of its gradient count in the norm
  uint64_t storedOffset = 0, gradientOffset = 0, stateOffset = 0;
  /// ZeRO 2 and 3: what is in parts in the regions gradients and parameters is whole there, for a while.
  std::optional<uint64_t> wholeGradientOffset, wholeStoredOffset;
  bool isTied = false;     ///< of another segment, which owns it
  bool isTiedHere = false; ///< that segment lies on the same stage: it has the storage and does the update
  /// Names of transfers, where there are any: those that sum its gradients once a step, in order, that which scatters
  /// the gradient of a micro-batch, and that which gathers its shares.
  std::vector<std::string> sums;
  std::string scatter, gather;

  /// Elements of its accumulator, and of its parameters, that a rank keeps.
  int64_t gradientElements() const { return wholeGradientOffset ? partElements : elements; }
  int64_t storedElements() const { return wholeStoredOffset ? partElements : elements; }
};

struct SegmentLayout {
  std::string kind;
  std::vector<SegmentParameter> parameters;
  std::vector<SegmentBucket> buckets; ///< tied ones first, so that they lie alike in every holder
  bool master = false;                ///< an f32 master precedes the two moments in the state
  /// Bytes of the regions; those of a segment that holds tied parameters of another one include the other's.
  uint64_t parameterBytes = 0, gradientBytes = 0, stateBytes = 0, wholeGradientBytes = 0, wholeStoredBytes = 0;

  const SegmentParameter &parameter(llvm::StringRef name) const;
  /// The bucket of that name.
  const SegmentBucket &bucket(llvm::StringRef name) const;
  const SegmentBucket &bucketOf(const SegmentParameter &parameter) const { return buckets[parameter.bucket]; }
  /// Bytes from the start of the region in which calls find a parameter to it, and to its gradient.
  uint64_t parameterOffset(const SegmentParameter &parameter) const;
  uint64_t gradientOffset(const SegmentParameter &parameter) const;
};

/// The segments that `form-buckets` has listed in the module. Parameters stand bucket by bucket.
std::vector<SegmentLayout> readSegments(mlir::ModuleOp module);

/// Parts of the optimizer's state, in their order in the region: of "block.decayed" the first is
/// "block.decayed.master", or that of "moment1" without masters.
std::vector<std::string> stateParts(const SegmentLayout &segment);

/// What a buffer of `bytes` takes of its region or of the arena, with `guard` bytes of a checked plan behind it.
inline uint64_t alignUp(uint64_t bytes, uint64_t guard) { return (bytes + 63) / 64 * 64 + guard; }

} // namespace espalier
