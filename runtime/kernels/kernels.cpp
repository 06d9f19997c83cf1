#include "runtime/kernels/kernels.h"

#include "runtime/kernels/factories.h"

namespace espalier::rt {

std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call) {
  switch (call.function()) {
  case pb::LibraryCall::MATMUL:
    return makeMatmul(call);
  case pb::LibraryCall::ATTENTION_FORWARD:
    return makeAttentionForward(call);
  case pb::LibraryCall::ATTENTION_BACKWARD:
    return makeAttentionBackward(call);
  case pb::LibraryCall::EMBED:
    return makeEmbed(call);
  case pb::LibraryCall::EMBED_GRADIENT:
    return makeEmbedGradient(call);
  case pb::LibraryCall::ROPE:
    return makeRope(call);
  case pb::LibraryCall::SQUARED_NORM:
    return makeSquaredNorm(call);
  case pb::LibraryCall::COPY:
    return makeCopy(call);
  case pb::LibraryCall::ZERO:
    return makeZero(call);
  case pb::LibraryCall::REDUCE_PARTS:
    return makeReduceParts(call);
  default:
    CallReader(call, {0, 0})
        .refuse("is function " + std::to_string(call.function()) +
                ", which has no kernel in this runtime");
  }
}

} // namespace espalier::rt
