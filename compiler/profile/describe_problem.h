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

/// Returns the numbers of tensor ranks that terms are read for.
std::vector<int> tensorRanks(const RunConfig &run);

/// Returns the forms of experts on `tp` tensor ranks that plans may have: true if tp splits each expert, false if
/// experts are spread over tp.
std::vector<bool> expertSplits(const RunConfig &run, int tp);

/// Returns the values of ParallelConfig::expertsOverContext that plans may have.
std::vector<bool> expertsOverContext(const RunConfig &run);

/// Returns 1 and, for a model with experts, the smallest number that splits them.
std::vector<int> expertRanks(const RunConfig &run, int tp, bool splitsExperts);

} // namespace espalier
