// Defines guard bytes of checked plans: free bytes after every buffer, which the executor fills and verifies after each
// instruction.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

#include "dialects/attributes.h"

namespace espalier {

/// Guard bytes after each buffer with `compile --check`: the size of the widest vector store.
inline constexpr int64_t checkedGuardBytes = 64;

/// Returns the guard bytes of the module's plan: its attribute `exec.guard_bytes`, or 0 if the plan is not checked.
inline int64_t guardBytes(mlir::ModuleOp module) {
  auto bytes = exec::guardBytesAttr.of(module);
  return bytes ? bytes.getInt() : 0;
}

/// Returns the size that a buffer of `bytes` takes in its region or arena, including `guard` bytes of a checked plan.
inline uint64_t alignUp(uint64_t bytes, uint64_t guard) { return (bytes + 63) / 64 * 64 + guard; }

} // namespace espalier
