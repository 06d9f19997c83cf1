// Describes the identity of a model, which a run's checkpoint must match. Its digest covers what the model computes,
// without layout and data types. Data types and dropout are recorded separately.
#pragma once

#include "compiler/import/run/run_config.h"

#include "format/plan.pb.h"

namespace espalier {

/// Fills in the model's identity. Batch size, sequence length, parallel split, recomputation and target do not affect
/// it.
void describeIdentity(const RunConfig &run, rt::pb::Identity &out);

} // namespace espalier
