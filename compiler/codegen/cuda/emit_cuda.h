// PTX for GPUs: all kernels of a module as one text.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace espalier::codegen::cuda {

/// The oldest architecture that the text runs on, the level of its KernelObject.
inline constexpr const char *architecture = "sm_80";

/// Compiles every exec.kernel of `module` to PTX. The same module gives the same text. Errors are reported on the
/// module.
mlir::FailureOr<std::string> emitPtx(mlir::ModuleOp module);

} // namespace espalier::codegen::cuda
