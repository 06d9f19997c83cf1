// Matches a contraction of named dimensions with the matrix product of dense rows that a library computes.
#pragma once

#include "dialects/interfaces.h"

#include "mlir/IR/Operation.h"

#include <optional>

namespace espalier::codegen {

/// The product c = a b with grouped dimensions. `a` provides the rows of c.
struct MatrixProduct {
  using Names = llvm::SmallVector<mlir::StringAttr>;

  mlir::Value a, b;
  Names batch, m, n, k;
  bool transposeA = false, transposeB = false;

  /// Sets the transpositions. Returns whether the operands are stored as [batch, m, k] or [batch, k, m], and as [batch,
  /// k, n] or [batch, n, k].
  bool orient();
};

/// Returns the product of the first two operands of `op` that gives its first result, or nothing. Operand `a` of the
/// result is the one that provides the rows.
std::optional<MatrixProduct> collapse(mlir::Operation *op);

} // namespace espalier::codegen
