// Turns library calls for which GPUs have no library into kernel launches.
#pragma once

#include "compiler/codegen/program_builder.h"

namespace espalier::codegen::cuda {

/// One launch of a kernel without body, identified by `shape`, `parameters` and `geometry`.
struct SpecialLaunch {
  llvm::StringRef shape = {};
  mlir::NamedAttrList parameters = {};
  exec::GeometryAttr geometry = {};
  llvm::SmallVector<exec::BufferAttr> buffers = {}; ///< the last `outputs` are written
  int64_t outputs = 1;
  llvm::SmallVector<mlir::Attribute> scalars = {};
  int64_t extent = 1;
};

/// Returns the launches that replace `call`, in order; empty for calls that remain library calls. `newBuffer` allocates
/// the intermediate buffers between launches.
llvm::SmallVector<SpecialLaunch> launchesOf(const ProgramBuilder::Call &call, mlir::MLIRContext *context,
                                            llvm::function_ref<exec::BufferAttr(mlir::Type)> newBuffer);

} // namespace espalier::codegen::cuda
