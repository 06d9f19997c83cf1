// The batch sizes of a ramp, as run files and Megatron's flags state them.
#pragma once

#include "compiler/import/run/run_config.h"

#include <string>
#include <vector>

namespace espalier {

/// The smaller batches before the final one. If `fault` is not empty, it says what is wrong, and there are none.
struct Ramp {
  std::vector<BatchStep> steps; ///< ascending in samples
  std::string fault;
};

/// Returns the ramp of the words start, increment, samples: the batch grows by `increment` at equal distances in
/// samples.
Ramp linearRamp(const std::vector<std::string> &words, int64_t globalBatch);

/// Returns the ramp of "TOKENS:BATCH TOKENS:BATCH ...": from TOKENS on, a step has BATCH samples.
Ramp steppedRamp(const std::string &text, int64_t sequence, int64_t globalBatch);

/// Returns the number of whole steps that `samples` samples fill from the beginning of a run.
int64_t stepsOf(int64_t samples, const std::vector<BatchStep> &ramp, int64_t globalBatch);

} // namespace espalier
