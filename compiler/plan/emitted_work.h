// What the instructions of emitted programs read and write, by the op of the fused model that each was made from. On
// GPUs an op is one kernel or several, a copy, or the epilogue of a product: each is priced by the bytes that it moves.
#pragma once

#include "compiler/plan/read_sizes.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// A kernel, product or copy. Scratch whose size has no dimension of the model counts as it is at the profiled point.
struct EmittedPiece {
  std::string name;
  planner::Size bytes; ///< read plus written
};

class EmittedWork {
public:
  /// Of the programs that a copy of `fused` becomes; nothing, with a diagnostic, where there are none.
  static std::optional<EmittedWork> read(mlir::ModuleOp fused, const SizeReader &sizes);

  /// In the order in which they run; none for what another op's do, too.
  llvm::ArrayRef<EmittedPiece> of(mlir::Operation *op) const;

private:
  llvm::DenseMap<mlir::Operation *, std::vector<EmittedPiece>> pieces; ///< by op of the fused model
};

} // namespace espalier
