// Prices one given plan and lists the constraints that the plan violates.
#pragma once

#include "planner/problem.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// A plan and its predicted cost.
struct PricedPlan {
  Plan plan;
  Prediction prediction;
  bool executable = true; ///< false: the executor cannot run it yet
};

/// Prices one given plan. If the plan has no stages, spreads the layers evenly and applies the pinned recompute class.
PricedPlan pricePlan(const Problem &problem, Plan plan);

/// Returns all faults of a problem at once: zero devices, missing links, pins out of range. Empty when it is valid.
std::vector<std::string> checkProblem(const Problem &problem);

/// Returns the constraints of the problem that a plan violates, each as a sentence. Does not check memory.
std::vector<std::string> violations(const Problem &problem, const Plan &plan);

/// Same as violations(), but does not check whether the problem has terms for the plan. Fast.
std::vector<std::string> structuralViolations(const Problem &problem, const Plan &plan);

} // namespace espalier::planner
