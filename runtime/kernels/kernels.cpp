#include "runtime/kernels/kernels.h"

#include "runtime/kernels/factories.h"

namespace espalier::rt {

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads) {
  return makeLibraryKernel(call, types, threads, cpu::bestLoops());
}

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads, const cpu::Loops &loops) {
  switch (call.function()) {
  case pb::LibraryCall::MATMUL:
    return makeMatmul(call, types, loops, threads);
  case pb::LibraryCall::ATTENTION_FORWARD:
    return makeAttentionForward(call, types, loops);
  case pb::LibraryCall::ATTENTION_BACKWARD:
    return makeAttentionBackward(call, types, loops);
  case pb::LibraryCall::EMBED:
    return makeEmbed(call, types, loops);
  case pb::LibraryCall::EMBED_GRADIENT:
    return makeEmbedGradient(call, types, loops);
  case pb::LibraryCall::ROPE:
    return makeRope(call, types, loops);
  case pb::LibraryCall::SQUARED_NORM:
    return makeSquaredNorm(call, types, loops);
  case pb::LibraryCall::COPY:
    return makeCopy(call, types);
  case pb::LibraryCall::ZERO:
    return makeZero(call, types);
  case pb::LibraryCall::REDUCE_PARTS:
    return makeReduceParts(call, types, loops);
  case pb::LibraryCall::UPDATE_SCALARS:
    return makeUpdateScalars(call, types);
  case pb::LibraryCall::REARRANGE:
    return makeRearrange(call, types);
  case pb::LibraryCall::ATTEND_CACHE:
    return makeAttendCache(call, types, loops);
  case pb::LibraryCall::TAKE_ROW:
    return makeTakeRow(call, types);
  case pb::LibraryCall::ROUTE:
    return makeRoute(call, types, loops);
  case pb::LibraryCall::DISPATCH:
    return makeDispatch(call, types, loops);
  case pb::LibraryCall::COMBINE:
    return makeCombine(call, types, loops);
  default:
    CallReader::refuse(call,
                       "is function " + std::to_string(call.function()) + ", which has no kernel in this runtime");
  }
}

} // namespace espalier::rt
