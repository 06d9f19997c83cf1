// Describes the parameter layout of a segment: the local shard of each parameter, and the buckets that pack parameters
// in the regions parameters, gradients and state of a layer call. Holds the ops exec.segment, exec.bucket and
// exec.parameter as plain data.
#pragma once

#include "compiler/import/model/model_description.h"
#include "compiler/partition/layout.h"
#include "format/optimizers.h"

#include "mlir/IR/BuiltinOps.h"

#include <array>
#include <optional>

namespace espalier {

/// Alignment, in elements, of a parameter within its bucket. Shard sizes are multiples of it.
inline constexpr int64_t bucketAlignment = 128;

/// One parameter of a segment and its position in a bucket.
struct SegmentParameter {
  std::string name;                 ///< local to the segment kind
  std::vector<std::string> dims;    ///< dimension names
  std::vector<int64_t> shape;       ///< global
  std::vector<int64_t> paddedShape; ///< global, with the vocabulary's padding
  Sharding sharding;
  Initializer initializer;
  std::string tiedTo;          ///< "segment.parameter" whose storage this parameter uses, or empty
  mlir::LocationAttr location; ///< line in the model file
  int64_t localElements = 0;
  size_t bucket = 0; ///< index in SegmentLayout::buckets
  int64_t first = 0; ///< first element within the bucket
};

/// The mesh axes that split the rows, or the columns, of a bucket's matrices into slices.
struct MatrixSide {
  Axes axes;
  int64_t parts = 1; ///< ranks of the axes
  bool operator==(const MatrixSide &other) const = default;
};

/// What QK-clip does to the weight that a bucket holds. Each row of the weight has `columns` elements of each of
/// `heads` key-value heads.
struct BucketClip {
  std::string counter; ///< the largest scores of the heads
  std::string dim;     ///< the dimension of the heads
  double exponent = 0; ///< of a head's factor
  int64_t heads = 1, columns = 1;
  Axes axes; ///< axes whose ranks keep the maxima of other samples or positions
  bool operator==(const BucketClip &other) const = default;
};

/// A bucket: parameters that are reduced, updated and gathered together. They differ only in their shapes.
struct SegmentBucket {
  std::string name;               ///< for example "block.decayed"
  uint32_t number = 0;            ///< index among all buckets of the plan; a tied bucket has its owner's number
  std::vector<size_t> parameters; ///< indices in SegmentLayout::parameters
  int64_t elements = 0;           ///< on one rank, padded to a multiple of the shard count
  int64_t partElements = 0;       ///< elements of a ZeRO shard, or all elements
  mlir::Type stored;              ///< type of the stored parameters
  int64_t elementBytes = 4;       ///< bytes of one stored element
  mlir::Type summed;              ///< type of the gradients and their sums
  Axes partialAxes, shareAxes;    ///< mesh axes of the parameters; pipeline stages are in `holders`
  std::vector<uint32_t> holders;  ///< stages that hold a bucket which is tied across stages
  bool decays = false;
  bool isFrozen = false; ///< has neither gradients nor optimizer state
  rt::pb::Optimizer optimizer = rt::pb::ADAMW;
  int64_t rateGroup = 0; ///< above 0: the group of parameters whose learning rate the update uses
  /// Rows and columns of a rank's slice of a matrix if the optimizer needs whole matrices, else empty. The bucket then
  /// holds slices of this shape without gaps, and so does each shard.
  llvm::SmallVector<int64_t, 2> matrix;
  std::array<MatrixSide, 2> sides; ///< the split of rows and of columns
  double signRate = 0;             ///< step of the optimizer Sign
  std::optional<BucketClip> clip;  ///< set for a bucket with one weight, whose shards are whole rows
  double normWeight = 1;           ///< weight of the squared gradient in the gradient norm
  uint64_t storedOffset = 0, gradientOffset = 0, stateOffset = 0;
  /// Offsets of the gathered gradients (ZeRO 2 and 3) and of the gathered parameters (ZeRO 3). They are set if the
  /// regions gradients or parameters hold only shards.
  std::optional<uint64_t> wholeGradientOffset, wholeStoredOffset;
  bool isTied = false;     ///< another segment owns the bucket
  bool isTiedHere = false; ///< the owning segment is on the same stage, stores the bucket and updates it

  /// Returns whether ranks hold slices of the bucket's matrices.
  bool hasSlices() const { return sides != std::array<MatrixSide, 2>(); }
  /// Returns the bytes of one element of the gradients.
  int64_t gradientElementBytes() const { return summed.getIntOrFloatBitWidth() / 8; }
  /// Return the elements of the gradient accumulator and of the parameters that a rank stores.
  int64_t gradientElements() const { return wholeGradientOffset ? partElements : elements; }
  int64_t storedElements() const { return wholeStoredOffset ? partElements : elements; }
};

/// The parameters and buckets of one segment kind.
struct SegmentLayout {
  std::string kind;
  std::vector<SegmentParameter> parameters;
  std::vector<SegmentBucket> buckets; ///< tied buckets come first, so that every holder has the same order
  bool master = false;                ///< whether an f32 master copy precedes the optimizer's state tensors
  /// Bytes of the regions. A segment that holds tied parameters of another segment includes the other segment's bytes.
  uint64_t parameterBytes = 0, gradientBytes = 0, stateBytes = 0, wholeGradientBytes = 0, wholeStoredBytes = 0;

  /// Returns the parameter with this name.
  const SegmentParameter &parameter(llvm::StringRef name) const;
  /// Returns the bucket with this name.
  const SegmentBucket &bucket(llvm::StringRef name) const;
  const SegmentBucket &bucketOf(const SegmentParameter &parameter) const { return buckets[parameter.bucket]; }
  /// Return the offset, in bytes, of a parameter and of its gradient in the region where layer calls read them.
  uint64_t parameterOffset(const SegmentParameter &parameter) const;
  uint64_t gradientOffset(const SegmentParameter &parameter) const;
};

/// Reads the segments that `form-buckets` has listed in the module. Parameters are ordered by bucket.
std::vector<SegmentLayout> readSegments(mlir::ModuleOp module);

/// Returns the names of the parts of a bucket's optimizer state in their order in the region. Example: "block.decayed"
/// has the first part "block.decayed.master", or "block.decayed.moment1" if there is no master copy.
std::vector<std::string> stateParts(const SegmentLayout &segment, const SegmentBucket &bucket);

/// Returns the size that a buffer of `bytes` takes in its region or arena, including `guard` bytes of a checked plan.
inline uint64_t alignUp(uint64_t bytes, uint64_t guard) { return (bytes + 63) / 64 * 64 + guard; }

} // namespace espalier
