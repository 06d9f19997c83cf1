// Emits PTX: all kernels of a module as one text.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace espalier::codegen::cuda {

/// The oldest architecture that the text runs on, used as the level of its KernelObject.
inline constexpr const char *architecture = "sm_80";

/// Compiles every exec.kernel of `module` to PTX. Equal modules give equal text. Errors are reported on the module.
mlir::FailureOr<std::string> emitPtx(mlir::ModuleOp module);

} // namespace espalier::codegen::cuda
