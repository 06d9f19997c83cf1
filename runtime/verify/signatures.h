// How the dims of a row of functions.def stand for the named dimensions of the values that a call or launch is given.
#pragma once

#include "runtime/functions.h"
#include "runtime/verify/dims.h"

#include <map>

namespace espalier::rt::verify {

/// What each dim of a row stands for. Example: x [batch 4, seq 6, heads 2, head_dim 8] and positions [batch 4, seq 6]
/// of ROPE bind `tokens` to [batch 4, seq 6], `heads` to [heads 2] and `head_dim` to [head_dim 8].
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

  /// What does not fit together, or nothing. Binds the dims.
  std::string bind();
  /// The elements of a dim (bytes if an operand of the type b has it and `inBytes`), or the value of a flag; nothing
  /// for a dim that no operand has.
  std::optional<int64_t> sizeOf(const std::string &name, bool inBytes) const;

private:
  /// Dimensions, and which operand has them.
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
