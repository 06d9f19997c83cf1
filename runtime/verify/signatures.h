// Binds the dims of a row of functions.def to the named dimensions of the values that a call or launch gets.
#pragma once

#include "format/functions.h"
#include "runtime/verify/dims.h"

#include <map>

namespace espalier::rt::verify {

/// The dimensions that each dim of a row denotes. Example: x [batch 4, seq 6, heads 2, head_dim 8] and positions [batch
/// 4, seq 6] of ROPE bind `tokens` to [batch 4, seq 6], `heads` to [heads 2] and `head_dim` to [head_dim 8].
class DimBinding {
public:
  /// An operand and the dimensions of the value in buffer `buffer`, whose elements have `width` bytes.
  struct Bound {
    int buffer;
    const OperandSignature *row;
    Dims dims;
    int64_t width;
  };

  DimBinding(const FunctionSignature &function, const Shapes &shapes, std::vector<Bound> operands)
      : function(function), shapes(shapes), operands(std::move(operands)) {}

  /// Binds the dims. Returns the first mismatch, or an empty string.
  std::string bind();
  /// Returns the elements of a dim, or the value of a flag. Returns bytes if an operand of type b has the dim and
  /// `inBytes` is set. Returns nothing for a dim that no operand has.
  std::optional<int64_t> sizeOf(const std::string &name, bool inBytes) const;
  /// Returns whether a size is that of a dimension that is split over ranks.
  bool isSplit(const std::string &name) const;
  /// Checks the row's `slots` against the sizes of a call, in the order of the row. Returns an error or an empty
  /// string.
  std::string faultOfSlots(const std::vector<int64_t> &sizes) const;

private:
  /// The dimensions that a dim is bound to, and the operand that bound it.
  struct Meaning {
    Dims dims;
    const Bound *from;
  };
  std::optional<size_t> lengthOf(const SignatureDim &dim) const;
  bool isReady(const Bound &operand) const;
  std::string bind(const Bound &operand);
  std::string bind(const SignatureDim &dim, const Dims &found, const Bound &operand);
  std::string faultOfWhole() const;

  const FunctionSignature &function;
  const Shapes &shapes;
  std::vector<Bound> operands;
  std::map<std::string, Meaning> meanings;
  std::map<std::string, bool> flags;
};

} // namespace espalier::rt::verify
