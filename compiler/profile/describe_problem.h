// Describes a run as the planner's input, without the terms of its segments.
#pragma once

#include "compiler/import/run/run_config.h"
#include "planner/problem.h"

#include <string>
#include <vector>

namespace espalier {

/// Largest number of devices that the planner may try, as a multiple of the cluster's devices. Adding devices is a
/// relaxation.
inline constexpr int64_t largestGrowth = 64;

/// Returns the model's dimensions, kinds, layers, buffers and limits, and the run's machine, software, batch and pins.
planner::Problem describeProblem(const RunConfig &run);

/// Sets the fields that do not depend on the model.
void describeRun(const RunConfig &run, planner::Problem &problem);

/// Returns the index of the kind with this name. The problem must have one.
int kindNamed(const planner::Problem &problem, const std::string &kind);

/// Returns the length of a sample, or 0 if samples are not sequences.
int64_t sequenceOf(const RunConfig &run);

/// Returns whether tp splits each expert. Otherwise experts are spread over tp and ep.
bool splitsExperts(const RunConfig &run);

/// Returns the numbers of tensor ranks that terms are read for.
std::vector<int> tensorRanks(const RunConfig &run);

/// Returns 1 and, for a model with experts, the smallest number that splits them.
std::vector<int> expertRanks(const RunConfig &run, int tp);

} // namespace espalier
