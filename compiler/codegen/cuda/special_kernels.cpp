#include "compiler/codegen/cuda/special_kernels.h"

using namespace mlir;

namespace espalier::codegen::cuda {

BuildKernel specialKernel(StringRef shape) {
  static const llvm::StringMap<BuildKernel> builders = {
#define KERNEL(shape, function, signature) {#shape, build<SpecialKernel::shape>},
#include "format/functions.def"
  };
  return builders.lookup(shape);
}

Destination destinationOf(exec::KernelOp kernel) {
  if (kernel.getParameters()->contains("always_adds"))
    return Destination::Add;
  return kernel.getParameters()->contains("accumulate") ? Destination::AddUnlessFirst : Destination::Overwrite;
}

Type typeParameter(exec::KernelOp kernel, StringRef name) {
  return cast<TypeAttr>(kernel.getParameters()->get(name)).getValue();
}

int64_t integerParameter(exec::KernelOp kernel, StringRef name) {
  return cast<IntegerAttr>(kernel.getParameters()->get(name)).getInt();
}

int64_t integerParameter(exec::KernelOp kernel, StringRef name, int64_t otherwise) {
  return kernel.getParameters()->contains(name) ? integerParameter(kernel, name) : otherwise;
}

double realParameter(exec::KernelOp kernel, StringRef name) {
  return cast<FloatAttr>(kernel.getParameters()->get(name)).getValueAsDouble();
}

double realParameter(exec::KernelOp kernel, StringRef name, double otherwise) {
  return kernel.getParameters()->contains(name) ? realParameter(kernel, name) : otherwise;
}

} // namespace espalier::codegen::cuda
