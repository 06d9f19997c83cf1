// Lists the dimensions of a model that mesh axes split.
#pragma once

#include "compiler/import/model/model_description.h"
#include "planner/problem.h"

#include <vector>

namespace espalier {

/// Returns the dimensions that axes split, and so must divide. Sizes that the description does not have are 0.
std::vector<planner::Divisibility> splitLimits(const ModelDescription &model);

} // namespace espalier
