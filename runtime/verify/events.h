// What the proof is about: spans of bytes, what they hold, and steps that ask something of them and change them. No
// protobuf: a front end makes these from a plan.
#pragma once

#include <cstdint>
#include <optional>
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

/// Which value: of a family, at a place (a call, a parameter), a number (micro-batch, version, or terms of a sum).
struct Instance {
  uint32_t family = 0, place = 0, number = 0;
  bool operator==(const Instance &) const = default;
};

/// What bytes hold. Ranges of one write have the same `write` and `origin`, so that neighbours can be told to be one
/// piece of one value.
struct Content {
  enum Kind : uint8_t { Undefined, Ready, Sum };
  Kind kind = Undefined;
  Instance instance;  ///< of a sum: the parameter, and in `number` how many terms it has
  uint32_t write = 0; ///< which write of the instance's region
  Axes partial = 0;   ///< of a sum: what is left to be summed over
  int64_t origin = 0; ///< where the instance's first byte would lie
  bool operator==(const Content &) const = default;
};

/// How a step uses an operand. Update: reads and writes; of a resident value this makes the next version.
enum class Access : uint8_t { Read, Write, Update, Add, AddUnlessFirst };

struct Operand {
  int region = 0;
  Access access = Access::Read;
  Span span;
};

/// A transfer of a step: what it does to sums.
struct Transfer {
  enum Kind : uint8_t { Reduce, Scatter, Gather };
  Kind kind = Reduce;
  bool isSum = true;
  Axes axes = 0;
};

/// Rows of a strided copy: `outer` blocks of `bytes` at a distance of `stride`. None if stride is 0.
struct CopyShape {
  int64_t outer = 0, stride = 0, bytes = 0;
  bool isCopy = false;
};

/// One instruction. Operands of a Start come in pairs, source then target.
struct Step {
  enum Kind : uint8_t { Compute, Start, Wait };
  Kind kind = Compute;
  int instruction = 0;
  uint32_t flight = 0;
  int source = -1;       ///< of a Start that moves what an instruction has left in the workspace: that instruction
  bool mayShare = false; ///< what it writes may lie exactly where it reads
  std::vector<Operand> operands;
  Transfer transfer;
  CopyShape copy;
};

} // namespace espalier::rt::verify
