#include "compiler/codegen/cuda/special_kernels.h"

using namespace mlir;

namespace espalier::codegen::cuda {

BuildKernel specialKernel(StringRef shape) {
  static const llvm::StringMap<BuildKernel> builders = {{"attention_forward", buildAttentionForward},
                                                        {"attention_key_gradient", buildAttentionKeyGradient},
                                                        {"attention_query_gradient", buildAttentionQueryGradient},
                                                        {"keep_rows", buildKeepRows},
                                                        {"attend_cache", buildAttendCache},
                                                        {"take_row", buildTakeRow},
                                                        {"embed", buildEmbed},
                                                        {"order_tokens", buildOrderTokens},
                                                        {"sum_segments", buildSumSegments},
                                                        {"join_segments", buildJoinSegments},
                                                        {"choose_experts", buildChooseExperts},
                                                        {"give_slots", buildGiveSlots},
                                                        {"find_rows", buildFindRows},
                                                        {"dispatch", buildDispatch},
                                                        {"combine", buildCombine},
                                                        {"rope", buildRope},
                                                        {"square_blocks", buildSquareBlocks},
                                                        {"add_squares", buildAddSquares},
                                                        {"reduce_parts", buildReduceParts},
                                                        {"update_scalars", buildUpdateScalars}};
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
