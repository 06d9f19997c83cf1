#include "runtime/kernels/kernels.h"

#include "runtime/kernels/factories.h"

namespace espalier::rt {

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads, bool quantizes) {
  return makeLibraryKernel(call, types, threads, cpu::bestLoops(), quantizes);
}

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads, const cpu::Loops &loops, bool quantizes) {
  KernelRequest request = {call, types, threads, loops, quantizes};
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
