// What a checkpoint of a run must agree with: what the model computes, apart from how it is laid out and in which
// types.
#pragma once

#include "compiler/import/run_config.h"

#include "runtime/plan.pb.h"

namespace espalier {

/// Equal for all plans of one model: neither batch and sequence nor split, recompute or target enter.
void describeIdentity(const RunConfig &run, rt::pb::Identity &out);

} // namespace espalier
