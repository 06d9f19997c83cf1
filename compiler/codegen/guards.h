// Checked plans: free bytes behind every buffer, which the executor fills and looks at after each instruction.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// What `compile --check` keeps free behind each buffer: as far as the widest vector store can reach.
inline constexpr int64_t checkedGuardBytes = 64;

/// Bytes free behind each buffer of the module's plan: its attribute `exec.guard_bytes`, 0 where nothing is checked.
inline int64_t guardBytes(mlir::ModuleOp module) {
  auto bytes = module->getAttrOfType<mlir::IntegerAttr>("exec.guard_bytes");
  return bytes ? bytes.getInt() : 0;
}

} // namespace espalier
