// The function table of the level being compiled.
#include "runtime/kernels/cpu/loops.h"

#define ESPALIER_QUOTE(x) #x
#define ESPALIER_NAME(x) ESPALIER_QUOTE(x)

namespace espalier::rt::cpu::ESPALIER_LEVEL {

extern const Loops loops;
const Loops loops = {
    .name = ESPALIER_NAME(ESPALIER_LEVEL),
    .gemmScratchBytes = gemmScratchBytes,
    .gemm = gemm,
    .packedFloats = packedFloats,
    .packWeights = packWeights,
    .attentionForwardScratchBytes = attentionForwardScratchBytes,
    .attentionForward = attentionForward,
    .attentionBackwardScratchBytes = attentionBackwardScratchBytes,
    .attentionBackward = attentionBackward,
    .attendCache = attendCache,
    .convert = convert,
    .add = add,
    .addScaled = addScaled,
    .squaredSum = squaredSum,
    .rope = rope,
    .recurrenceScratchBytes = recurrenceScratchBytes,
    .recurrence = recurrence,
    .causalConv = causalConv,
    .causalConvGradient = causalConvGradient,
};

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
