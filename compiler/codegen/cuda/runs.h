// The runs of positions of sequences of which a rank has a shard, in kernels.
#pragma once

#include "compiler/codegen/cuda/special_kernels.h"

namespace espalier::codegen::cuda {

/// Returns the number, among all `count` runs of its sequence, of the run `row`, counted over the samples. The rank has
/// `own` runs of `length` positions per sample.
inline Expr runNumber(KernelFunction &f, Expr row, int64_t own, Expr length, Expr count) {
  Expr first = atMost(Expr(f, f.scalar("FIRST_QUERY")) / length, count - 1);
  return own == 1 ? first : select(row % own == 0, first, count - 1 - first);
}

/// Loads the i32 at `index` of an operand as i64.
inline Expr wideAt(KernelFunction &f, llvm::StringRef operand, Expr index) {
  mlir::Type i32 = f.b.getI32Type();
  return wide(loadValue(elementAt(Expr(f, f.buffer(operand)), index, i32), i32));
}

} // namespace espalier::codegen::cuda
