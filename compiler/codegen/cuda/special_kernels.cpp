#include "compiler/codegen/cuda/special_kernels.h"

namespace espalier::codegen::cuda {

BuildKernel specialKernel(llvm::StringRef shape) {
  static const llvm::StringMap<BuildKernel> builders = {};
  return builders.lookup(shape);
}

} // namespace espalier::codegen::cuda
