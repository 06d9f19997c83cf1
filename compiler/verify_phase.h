// Defines the dialects and ops that each phase may leave in the IR.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Reports an op that must not remain after `phase`, and fails if there is one.
mlir::LogicalResult verifyPhase(mlir::ModuleOp module, llvm::StringRef phase);

} // namespace espalier
