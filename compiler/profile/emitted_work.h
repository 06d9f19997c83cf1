// Reads the bytes that instructions of emitted programs move, by the op of the fused model that each instruction was
// lowered from. On GPUs an op becomes one or more kernels, a copy, or the epilogue of a product. The planner prices
// each of them by the bytes that it moves.
#pragma once

#include "compiler/profile/read_sizes.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// A kernel, product or copy. Scratch buffers whose size does not depend on a model dimension count with their size at
/// the profiled point.
struct EmittedPiece {
  std::string name;
  planner::Size bytes; ///< bytes read plus bytes written
};

/// The emitted work of a module.
class EmittedWork {
public:
  /// Lowers a copy of `fused` to programs and reads them. Returns nothing, and reports an error, if the lowering fails.
  static std::optional<EmittedWork> read(mlir::ModuleOp fused, const SizeReader &sizes);

  /// Returns the pieces of an op in execution order. The result is empty if the instructions of another op include its
  /// work.
  llvm::ArrayRef<EmittedPiece> of(mlir::Operation *op) const;

private:
  llvm::DenseMap<mlir::Operation *, std::vector<EmittedPiece>> pieces; ///< by op of the fused model
};

} // namespace espalier
