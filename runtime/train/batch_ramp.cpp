#include "runtime/train/batch_ramp.h"

#include <algorithm>

namespace espalier::rt {

StepBatch batchAfter(const pb::Settings &settings, int64_t consumed, uint32_t entry) {
  for (const pb::BatchStep &step : settings.batch_ramp())
    if (consumed < static_cast<int64_t>(step.samples()))
      return {step.entry(), static_cast<int64_t>(step.global_batch())};
  return {entry, static_cast<int64_t>(settings.global_batch())};
}

int64_t samplesOf(const pb::Settings &settings, int64_t steps) {
  int64_t samples = 0;
  for (const pb::BatchStep &step : settings.batch_ramp()) {
    auto end = static_cast<int64_t>(step.samples()), batch = static_cast<int64_t>(step.global_batch());
    int64_t here = std::min(steps, end > samples ? (end - samples + batch - 1) / batch : 0);
    samples += here * batch;
    steps -= here;
  }
  return samples + steps * static_cast<int64_t>(settings.global_batch());
}

} // namespace espalier::rt
