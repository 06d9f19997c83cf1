// Phase borders: which dialects and ops each phase may leave behind.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Reports every op that `phase` should not have left.
mlir::LogicalResult verifyPhase(mlir::ModuleOp module, llvm::StringRef phase);

} // namespace espalier
