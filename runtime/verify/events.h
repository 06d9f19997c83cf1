// What the proof is about: spans of bytes, what they hold, and steps that ask something of them and change them. No
// protobuf: the front end makes these from a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::rt::verify {

/// A set of mesh axes of size above 1, as bits.
using Axes = uint32_t;

/// Bytes [begin, end). With `part`, of each rank the own one of equal parts, by its index among the ranks that differ
/// in these axes: parts of all members are disjoint and cover the span.
struct Span {
  int64_t begin = 0, end = 0;
  Axes part = 0;
  bool overlaps(const Span &other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Span &) const = default;
};

/// What the proof knows of a value of the plan.
struct ValueInfo {
  enum Layering : uint8_t { OfCall, OfStage, OfBucket };
  enum Part : uint8_t { None, Stored, Gathered, Gradient, Total, State };

  uint32_t root = 0;            ///< the value that it is a piece of, or itself
  int64_t begin = 0, end = 0;   ///< its bytes in the root
  int64_t width = 4;            ///< bytes of an element
  bool isPerMicroBatch = false; ///< else one instance for all
  bool isResident = false;      ///< lives from entry to entry
  bool isSum = false;           ///< something adds to it
  Layering layering = OfCall;
  Part part = None;    ///< of a bucket's values
  uint32_t bucket = 0; ///< of a bucket's values
  Axes share = 0;      ///< of a dense own part of a bucket's accumulator or stored values: over which axes ...
  int64_t shares = 1;  ///< ... and of how many
  uint32_t tag = 0;    ///< above 0: what a transfer makes of a piece of the root, which only those ask for that name it
};

/// Which value: the root, whose layer, of which micro-batch.
struct Instance {
  uint32_t value = 0;
  int32_t layer = 0;
  uint32_t microBatch = 0;
  bool operator==(const Instance &) const = default;
};

/// What bytes hold.
struct Content {
  enum Kind : uint8_t { Undefined, Found, Ready, Sum };
  Kind kind = Undefined;
  Instance instance;
  int64_t origin = 0;     ///< where the instance's first byte would lie
  uint32_t version = 0;   ///< of bytes of a bucket: how often written since the entry began
  uint32_t tag = 0;       ///< as ValueInfo.tag
  uint32_t sum = 0;       ///< of a sum: the value that is added to
  uint64_t terms = 0;     ///< of a sum: a hash of the set of its terms
  bool isPadding = false; ///< of a sum: zeros from the beginning, between parameters
  bool isRead = false;    ///< of a sum: nothing may be added any more
  uint32_t writer = 0;    ///< who left it, for errors
  bool operator==(const Content &) const = default;
};

/// How a step uses an operand. Update: reads and writes; of a resident value this makes the next version.
enum class Access : uint8_t { Read, Write, Update, Add, AddUnlessFirst };

/// Bytes of a region that name a value of layer `layer` + the call's.
struct Operand {
  int region = 0;
  Access access = Access::Read;
  Span span;
  uint32_t value = 0;
  int32_t layer = 0;
  int64_t valueBegin = 0, valueEnd = 0; ///< the value's bytes in its root, where all parts are counted
  int64_t origin = 0;                   ///< where a write puts the root's first byte
  bool operator==(const Operand &) const = default;
};

/// One instruction. Operands of a Start come in pairs, source then target.
struct Step {
  enum Kind : uint8_t { Compute, Start, Wait };
  Kind kind = Compute;
  int instruction = 0;
  uint32_t transfer = 0;
  uint32_t queue = 0;
  std::vector<Operand> operands;
  std::vector<uint64_t> over; ///< by operand: operands in whose place it may be written, as bits
  bool isGenerated = false;   ///< a kernel that writes nothing but what somebody reads
  double squares = 0;         ///< above 0: adds the squares of its operands to the norm, with this weight
};

} // namespace espalier::rt::verify
