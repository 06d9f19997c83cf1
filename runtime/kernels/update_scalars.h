// UPDATE_SCALARS: computes the gradient scale and whether the optimizer applies the step. Every rank computes both from
// the same all-reduced sums.
#pragma once

namespace espalier::rt {

/// The values of the abi.h slots that the call writes.
struct ScalarUpdate {
  float gradientScale, apply;
};

/// Returns the norm of the gradient of the mean loss, given the squared norm of the loss-scaled gradient sum.
double normalisedNorm(float tokenCount, float squaredNorm, float lossScale);

/// Returns whether a norm is above `normLimit`, which the host sets; 0 means no limit.
bool isSpike(double norm, float normLimit);

/// GradientScale = min(1, max_grad_norm / (norm + 1e-6)) / (TokenCount * LossScale), where norm is normalisedNorm(). A
/// max_grad_norm of 0 disables clipping. Apply = all sums are finite, TokenCount > 0 and norm is no spike. The CUDA
/// kernel does the same arithmetic in f64, bit for bit (compiler/codegen/cuda/update_scalars.cpp).
ScalarUpdate updateScalars(double maxGradNorm, float lossSum, float tokenCount, float squaredNorm, float lossScale,
                           float normLimit = 0);

} // namespace espalier::rt
