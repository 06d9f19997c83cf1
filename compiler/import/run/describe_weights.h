// Describes a model for the conversion of weights. Plans store the description, and `espalier convert` uses it.
#pragma once

#include "compiler/import/run/run_config.h"

#include "format/plan.pb.h"

namespace espalier {

/// Fills in the names that other systems use for the model's parameters.
void describeWeights(const RunConfig &run, rt::pb::WeightNames &out);

} // namespace espalier
