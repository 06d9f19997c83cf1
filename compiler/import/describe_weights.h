// What conversions of weights need to know of a model: for plans, which carry it, and for `espalier convert`.
#pragma once

#include "compiler/import/run_config.h"

#include "runtime/plan.pb.h"

namespace espalier {

void describeWeights(const RunConfig &run, rt::pb::WeightNames &out);

} // namespace espalier
