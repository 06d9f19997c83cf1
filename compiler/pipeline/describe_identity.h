// Describes the identity of a model, which a run's checkpoint must match. The identity covers what the model computes,
// but neither its layout over ranks nor its data types.
#pragma once

#include "compiler/import/run_config.h"

#include "runtime/plan.pb.h"

namespace espalier {

/// Fills in the model's identity. It is equal for all plans of one model: batch size, sequence length, parallel split,
/// recomputation and target do not affect it.
void describeIdentity(const RunConfig &run, rt::pb::Identity &out);

} // namespace espalier
