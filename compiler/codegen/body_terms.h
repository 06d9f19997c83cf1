// What a fused body does with terms of sums that ranks hold: which operands it only adds up, and which results are sums
// over rows or columns. The plan says it of a kernel's operands, so that the verifier can follow sums through kernels.
#pragma once

#include "compiler/codegen/kernel_shape.h"

namespace espalier::codegen {

struct BodyTerms {
  explicit BodyTerms(const KernelShape &shape);

  /// By argument of the body and by result: above 0, the result of this number is the sum of the arguments of this
  /// number, maybe over rows or columns, and these are read for nothing else.
  llvm::SmallVector<unsigned> arguments, results;
  /// By result: whether it is a sum or maximum over rows or columns that it has not.
  llvm::SmallVector<bool> isReduced;
  /// Whether the body goes on with a sum or maximum over columns: they must all be at hand.
  bool needsWholeColumns = false;
};

} // namespace espalier::codegen
