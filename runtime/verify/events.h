// The event model of the proof: byte spans, their contents, and steps with preconditions and effects on them. This
// header does not depend on protobuf. The front end builds the events from a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::rt::verify {

/// A set of mesh axes of size above 1, as bits.
using Axes = uint32_t;

/// The bytes [begin, end). With `part`, the span denotes one of its equal shards: the one at the rank's index among the
/// ranks that differ in these axes. The shards of all members are disjoint and cover the span.
struct Span {
  int64_t begin = 0, end = 0;
  Axes part = 0;
  bool overlaps(const Span &other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Span &) const = default;
};

/// The properties of a plan's value that the proof uses.
struct ValueInfo {
  /// The origin of a value's layer: the call, the stage (no layer), or the owner of the bucket.
  enum Layering : uint8_t { OfCall, OfStage, OfBucket };
  /// The role of a value in its bucket.
  enum Part : uint8_t { None, Stored, Gathered, Gradient, Total, State };

  uint32_t root = 0;            ///< the value that this value is a slice of, or the value itself
  int64_t begin = 0, end = 0;   ///< the value's byte range in the root
  int64_t width = 4;            ///< bytes per element
  bool isPerMicroBatch = false; ///< false: one instance serves all micro-batches
  bool isResident = false;      ///< stays alive between entries
  bool isSum = false;           ///< some instruction accumulates into it
  Layering layering = OfCall;
  Part part = None;          ///< the value's role in its bucket
  uint32_t bucket = 0;       ///< valid if `part` is not None
  Axes share = 0;            ///< the axes that shard a dense accumulator or stored value of a bucket
  int64_t shares = 1;        ///< the number of these shards
  bool isOfMatrices = false; ///< the bucket's optimizer needs whole matrices, so several instructions update it
  uint32_t tag =
      0; ///< above 0: a transfer gives this slice another meaning, which only readers of exactly this value get
};

/// Identifies a value at run time: the root, the layer and the micro-batch.
struct Instance {
  uint32_t value = 0;
  int32_t layer = 0;
  uint32_t microBatch = 0;
  bool operator==(const Instance &) const = default;
};

/// The content of a byte range.
struct Content {
  /// Found is the content of bytes that a subprogram has not written.
  enum Kind : uint8_t { Undefined, Found, Ready, Sum };
  Kind kind = Undefined;
  Instance instance;
  int64_t origin = 0;     ///< the address of the instance's first byte
  uint32_t version = 0;   ///< bucket values: the number of writes since the entry began
  uint32_t tag = 0;       ///< as ValueInfo.tag
  uint32_t sum = 0;       ///< sums: the value that is accumulated into
  uint64_t terms = 0;     ///< sums: a hash of the set of accumulated terms
  bool isPadding = false; ///< sums: the zeros between parameters
  bool isRead = false;    ///< sums: has been read, so no term may follow
  uint32_t writer = 0;    ///< the writer, for error messages
  bool operator==(const Content &) const = default;
};

/// The kind of an operand's access. Update reads and writes; an update of a resident value creates its next version.
enum class Access : uint8_t { Read, Write, Update, Add, AddUnlessFirst };

/// A byte span of a region that holds a value. The layer is `layer` plus the layer of the call.
struct Operand {
  int region = 0;
  Access access = Access::Read;
  Span span;
  uint32_t value = 0;
  int32_t layer = 0;
  int64_t valueBegin = 0, valueEnd = 0; ///< the value's byte range in its root, all shards included
  int64_t origin = 0;                   ///< the address at which a write puts the root's first byte
  bool operator==(const Operand &) const = default;
};

/// One instruction. The operands of a Start come in pairs of source and target.
struct Step {
  enum Kind : uint8_t { Compute, Start, Wait };
  Kind kind = Compute;
  int instruction = 0;
  uint32_t transfer = 0;
  uint32_t queue = 0;
  std::vector<Operand> operands;
  std::vector<uint64_t> over; ///< by operand: a bit mask of the operands that it may overwrite in place
  bool isGenerated = false;   ///< a generated kernel, whose every output must have a reader
  double squares = 0;         ///< above 0: adds the squares of its operands to the norm with this weight
};

} // namespace espalier::rt::verify
