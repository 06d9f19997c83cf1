// One given plan: its price, and what forbids it.
#pragma once

#include "planner/problem.h"

#include <string>
#include <vector>

namespace espalier::planner {

/// A plan and what is expected of it.
struct PricedPlan {
  Plan plan;
  Prediction prediction;
  bool executable = true; ///< false: the executor cannot run it yet
};

/// Prices one given plan. Stages may be empty: then layers are spread evenly and keep what the pins say.
PricedPlan pricePlan(const Problem &problem, Plan plan);

/// Faults of a problem (zero devices, missing links, pins out of range), all at once; empty when it is sound.
std::vector<std::string> checkProblem(const Problem &problem);

/// The constraints of the problem that a plan violates, each as a sentence. Memory is not looked at.
std::vector<std::string> violations(const Problem &problem, const Plan &plan);

/// The same without asking whether the model has terms for the plan: quick.
std::vector<std::string> structuralViolations(const Problem &problem, const Plan &plan);

} // namespace espalier::planner
