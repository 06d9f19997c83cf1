// A contraction of named dimensions as the matrix product of dense rows that a library does.
#pragma once

#include "dialects/interfaces.h"

#include "mlir/IR/Operation.h"

#include <optional>

namespace espalier::codegen {

/// c = a b with dimensions in groups; `a` gives the rows of c.
struct MatrixProduct {
  using Names = llvm::SmallVector<mlir::StringAttr>;

  mlir::Value a, b;
  Names batch, m, n, k;
  bool transposeA = false, transposeB = false;

  /// Whether both operands lie as [batch, m, k] or [batch, k, m] and [batch, k, n] or [batch, n, k].
  bool orient();
};

/// The product of the first two operands of `op` to its first result, with the operand first that gives the rows.
std::optional<MatrixProduct> collapse(mlir::Operation *op);

} // namespace espalier::codegen
