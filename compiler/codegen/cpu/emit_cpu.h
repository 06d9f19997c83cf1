// Machine code for CPUs: all kernels of a module, once per instruction set level, as ELF shared objects.
#pragma once

#include "dialects/exec/dialect.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace espalier::codegen {

/// One shared object with all kernels of a level.
struct CpuObject {
  std::string level; ///< x86-64, x86-64-v3 or x86-64-v4
  std::string bytes;
};

/// Compiles every exec.kernel of `module` for the three levels of x86-64, in parallel. The same module gives the same
/// bytes. Errors (a missing linker, kernels that cannot be compiled) are reported on the module.
mlir::FailureOr<std::vector<CpuObject>> emitCpuObjects(mlir::ModuleOp module);

} // namespace espalier::codegen
