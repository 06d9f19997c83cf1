// `plan --measured`: scales the rates of the machine to a measured step of the run file's own plan.
#pragma once

#include "compiler/profile/profile_model.h"
#include "tools/plan/plan_command.h"

#include <optional>

namespace espalier {

/// The measured step of --measured, or nothing.
class MeasuredStep {
public:
  MeasuredStep(const PlanArguments &arguments, ProfileCache &profiles) : arguments(arguments), profiles(profiles) {}

  /// Finds the factor of the machine's rates with which the plan of the run takes the measured time, and prints it.
  /// Returns false after an error.
  bool fit(const RunConfig &run);

  /// Scales the rates of a problem, if a step was measured.
  void apply(planner::Problem &problem) const;

private:
  const PlanArguments &arguments;
  ProfileCache &profiles;
  std::optional<double> factor;
};

} // namespace espalier
