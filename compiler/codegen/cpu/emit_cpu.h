// Emits machine code for CPUs: all kernels of a module, as one ELF shared object per instruction set level.
#pragma once

#include "dialects/exec/dialect.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace espalier::codegen {

/// A shared object with all kernels, compiled for one level.
struct CpuObject {
  std::string level; ///< x86-64, x86-64-v3 or x86-64-v4
  std::string bytes;
};

/// Compiles every exec.kernel of `module` for the three levels of x86-64, in parallel. Equal modules give equal bytes,
/// which a process compiles once. With `onlyLevel`, compiles for this level and returns its code for each level.
/// Reports errors on the module, such as a missing linker or a kernel that does not compile.
mlir::FailureOr<std::vector<CpuObject>> emitCpuObjects(mlir::ModuleOp module, llvm::StringRef onlyLevel = "");

} // namespace espalier::codegen
