// UPDATE_SCALARS: what the optimizer multiplies gradients by, and whether it updates at all. Every rank computes it
// from the same agreed sums.
#pragma once

namespace espalier::rt {

/// The slots of abi.h that it writes.
struct ScalarUpdate {
  float gradientScale, apply;
};

/// Norm of the gradient of the mean loss, from the sum of squares of the scaled, summed one.
double normalisedNorm(float tokenCount, float squaredNorm, float lossScale);

/// GradientScale = min(1, max_grad_norm / (norm + 1e-6)) / (TokenCount * LossScale), where norm is the normalised one
/// and max_grad_norm of 0 clips nothing; Apply = all sums are finite and there are tokens. The emitted kernel for GPUs
/// does the same arithmetic in f64, bit for bit (compiler/codegen/cuda/update_scalars.cpp).
ScalarUpdate updateScalars(double maxGradNorm, float lossSum, float tokenCount, float squaredNorm, float lossScale);

} // namespace espalier::rt
