#include "runtime/kernels/kernels.h"

#include "runtime/kernels/factories.h"

namespace espalier::rt {

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads) {
  return makeLibraryKernel(call, types, threads, cpu::bestLoops());
}

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads, const cpu::Loops &loops) {
  KernelRequest request = {call, types, threads, loops};
  switch (call.function()) {
#define FUNCTION(number, name, signature)                                                                              \
  case number:                                                                                                         \
    return makeKernel<number>(request);
#include "format/functions.def"
  default:
    CallReader::refuse(call,
                       "is function " + std::to_string(call.function()) + ", which has no kernel in this runtime");
  }
}

} // namespace espalier::rt
