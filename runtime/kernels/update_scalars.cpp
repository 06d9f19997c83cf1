#include "runtime/kernels/update_scalars.h"

#include "runtime/kernels/factories.h"

#include <algorithm>
#include <cmath>

namespace espalier::rt {

namespace {

class UpdateScalars final : public LibraryKernel {
public:
  UpdateScalars(const pb::LibraryCall &call, std::span<const pb::DataType> types) {
    maxGradNorm_ = CallReader(call, types).real("max_grad_norm");
    hasLimit_ = call.buffers_size() == 7;
  }

  int64_t parts() const override { return 1; }

  void run(const CallArguments &arguments, int64_t, void *) const override {
    auto slot = [&](int buffer) { return static_cast<float *>(arguments.buffers[buffer]); };
    float limit = hasLimit_ ? *slot(4) : 0;
    ScalarUpdate update = updateScalars(maxGradNorm_, *slot(0), *slot(1), *slot(2), *slot(3), limit);
    *slot(hasLimit_ ? 5 : 4) = update.gradientScale;
    *slot(hasLimit_ ? 6 : 5) = update.apply;
  }

private:
  double maxGradNorm_ = 0;
  bool hasLimit_ = false;
};

} // namespace

double normalisedNorm(float tokenCount, float squaredNorm, float lossScale) {
  return std::sqrt(double(squaredNorm)) / (double(tokenCount) * double(lossScale));
}

bool isSpike(double norm, float normLimit) { return normLimit > 0 && norm > double(normLimit); }

ScalarUpdate updateScalars(double maxGradNorm, float lossSum, float tokenCount, float squaredNorm, float lossScale,
                           float normLimit) {
  bool isFinite = std::isfinite(lossSum) && std::isfinite(squaredNorm) && tokenCount > 0;
  if (!isFinite || isSpike(normalisedNorm(tokenCount, squaredNorm, lossScale), normLimit))
    return {0, 0};
  double clip = 1;
  if (maxGradNorm > 0)
    clip = std::min(1.0, maxGradNorm / (normalisedNorm(tokenCount, squaredNorm, lossScale) + 1e-6));
  return {static_cast<float>(clip / (double(tokenCount) * double(lossScale))), 1};
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::UPDATE_SCALARS>(const KernelRequest &request) {
  return std::make_unique<UpdateScalars>(request.call, request.types);
}

} // namespace espalier::rt
