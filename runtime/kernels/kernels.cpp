#include "runtime/kernels/kernels.h"

#include "runtime/kernels/factories.h"

namespace espalier::rt {

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, int threads) {
  return makeLibraryKernel(call, threads, cpu::bestLoops());
}

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, int threads, const cpu::Loops &loops) {
  switch (call.function()) {
  case pb::LibraryCall::MATMUL:
    return makeMatmul(call, loops, threads);
  case pb::LibraryCall::ATTENTION_FORWARD:
    return makeAttentionForward(call, loops);
  case pb::LibraryCall::ATTENTION_BACKWARD:
    return makeAttentionBackward(call, loops);
  case pb::LibraryCall::EMBED:
    return makeEmbed(call, loops);
  case pb::LibraryCall::EMBED_GRADIENT:
    return makeEmbedGradient(call, loops);
  case pb::LibraryCall::ROPE:
    return makeRope(call, loops);
  case pb::LibraryCall::SQUARED_NORM:
    return makeSquaredNorm(call, loops);
  case pb::LibraryCall::COPY:
    return makeCopy(call);
  case pb::LibraryCall::ZERO:
    return makeZero(call);
  case pb::LibraryCall::REDUCE_PARTS:
    return makeReduceParts(call, loops);
  default:
    CallReader(call, {0, 0})
        .refuse("is function " + std::to_string(call.function()) + ", which has no kernel in this runtime");
  }
}

} // namespace espalier::rt
