// Library calls that GPUs have no library for, as launches of kernels.
#pragma once

#include "compiler/codegen/program_builder.h"

namespace espalier::codegen::cuda {

/// One launch of a kernel without a body, which `shape`, `parameters` and `geometry` name.
struct SpecialLaunch {
  llvm::StringRef shape = {};
  mlir::NamedAttrList parameters = {};
  exec::GeometryAttr geometry = {};
  llvm::SmallVector<exec::BufferAttr> buffers = {}; ///< the last `outputs` are written
  int64_t outputs = 1;
  llvm::SmallVector<mlir::Attribute> scalars = {};
  int64_t extent = 1;
};

/// What does the work of `call`, in order; nothing for calls that stay calls. `newBuffer` makes room for what the
/// launches hand to each other.
llvm::SmallVector<SpecialLaunch> launchesOf(const ProgramBuilder::Call &call, mlir::MLIRContext *context,
                                            llvm::function_ref<exec::BufferAttr(mlir::Type)> newBuffer);

} // namespace espalier::codegen::cuda
