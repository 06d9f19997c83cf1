// The learning rate of an optimizer step (FORMATS section 5).
#pragma once

#include "format/plan.pb.h"

#include <cstdint>

namespace espalier::rt {

/// Returns the learning rate of the update that follows `updates` updates. The schedule's `total_steps`, if positive,
/// overrides `runSteps`. Kinds: constant | linear | cosine | polynomial | inverse_sqrt | wsd. Throws PlanError for
/// another kind.
double learningRate(const pb::LearningRate &schedule, int64_t updates, int64_t runSteps);

/// Throws PlanError if the learning rates of all parameters are 0 at every step of a schedule for a run of `runSteps`
/// steps. An example is a warm-up over all steps of a run of one step.
void requireLearning(const pb::Settings &settings, int64_t runSteps);

} // namespace espalier::rt
