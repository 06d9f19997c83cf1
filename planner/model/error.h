// Errors of predicted steps and of their ratios.
#pragma once

#include "planner/problem.h"

namespace espalier::planner {

/// Returns the name of a content in configs/shares/intervals.yaml.
const char *contentName(Content content);

/// Returns whether a plan of the problem has a content. Ranks of ep and cp that exceed a host communicate over hosts.
bool hasContent(const Problem &problem, const ParallelConfig &config, Content content);

/// Returns the bound of an 80 % interval of a predicted step, less one: the largest over the plan's contents. 0:
/// unknown.
double timeError(const Problem &problem, const ParallelConfig &config);

/// Returns the error of the ratio of two plans' steps. It is symmetric.
double comparisonError(const ModelError &error, const ParallelConfig &one, const ParallelConfig &other);

} // namespace espalier::planner
