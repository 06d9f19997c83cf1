// Learning rate of an optimizer step (FORMATS section 5).
#pragma once

#include "runtime/plan.pb.h"

#include <cstdint>

namespace espalier::rt {

/// The rate of the update after `updates` updates of a run of `runSteps` steps; `total_steps` of the
/// schedule wins over `runSteps` when positive. Kinds: constant | linear | cosine | polynomial |
/// inverse_sqrt | wsd. Throws PlanError for another kind.
double learningRate(const pb::LearningRate &schedule, int64_t updates, int64_t runSteps);

} // namespace espalier::rt
