// Turns library calls for which GPUs have no library into kernel launches.
#pragma once

#include "compiler/codegen/target.h"

namespace espalier::codegen::cuda {

/// Returns the launches that replace `call`, in order; empty for calls that remain library calls. `newBuffer` allocates
/// the intermediate buffers between launches.
llvm::SmallVector<SpecialLaunch> launchesOf(const Call &call, mlir::MLIRContext *context,
                                            llvm::function_ref<exec::BufferAttr(mlir::Type)> newBuffer);

} // namespace espalier::codegen::cuda
