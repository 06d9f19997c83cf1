// Analyzes how a fused body treats partial sums: which operands it only adds, and which results are reductions over
// rows or columns. The plan records this per kernel operand, so that the verifier can follow partial sums through
// kernels.
#pragma once

#include "compiler/codegen/kernel_shape.h"

namespace espalier::codegen {

/// Linearity facts of a kernel body.
struct BodyTerms {
  /// Analyzes the body of `shape`.
  explicit BodyTerms(const KernelShape &shape);

  /// Group numbers of the body's arguments and results. If a result's number is above 0, the result is the sum of the
  /// arguments with the same number, possibly reduced over rows or columns. These arguments are used for nothing else.
  llvm::SmallVector<unsigned> arguments, results;
  /// By result: whether the result is a sum or maximum over dimensions that it no longer has.
  llvm::SmallVector<bool> isReduced;
  /// Whether the body uses a sum or maximum over columns as an operand. A rank must then hold all columns.
  bool needsWholeColumns = false;
};

} // namespace espalier::codegen
