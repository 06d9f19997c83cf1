// The batch of each step of a run whose batch size grows with the samples consumed.
#pragma once

#include "format/plan.pb.h"

#include <cstdint>

namespace espalier::rt {

/// The batch of a step.
struct StepBatch {
  uint32_t entry = 0;  ///< of the plan
  int64_t samples = 1; ///< over all replicas
};

/// Returns the batch of the step that begins after `consumed` samples. `entry` is that of the final batch.
StepBatch batchAfter(const pb::Settings &settings, int64_t consumed, uint32_t entry);

/// Returns the number of samples that `steps` steps from the beginning of a run consume.
int64_t samplesOf(const pb::Settings &settings, int64_t steps);

} // namespace espalier::rt
