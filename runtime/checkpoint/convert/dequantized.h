// Weights that a file stores in 4 or 8 bits with scales, as the 16-bit weights that they stand for.
#pragma once

#include "runtime/checkpoint/convert/weight_files.h"

namespace espalier::rt {

/// Returns a source that decodes quantised weights of `whole` to bf16, with the bits of transformers' dequantisation:
/// - MXFP4 (gpt-oss): NAME_blocks, u8 [n, rows, groups, 16], has two values of four bits per byte, the lower half
/// first;
///   NAME_scales, u8 [n, rows, groups], has powers of two with the bias 127. NAME is [n, 32 groups, rows].
/// - FP8 (DeepSeek-V3): NAME.weight, E4M3 [rows, columns], has a factor per block in NAME.weight_scale_inv, f32. Blocks
///   are equal parts, or 128 x 128 where that does not divide.
/// Other tensors are passed on. Returns `whole` if nothing is quantised so. Throws PlanError if shapes do not fit.
std::unique_ptr<WeightSource> dequantized(std::unique_ptr<WeightSource> whole);

} // namespace espalier::rt
