// The message of an elastic run to the commands that it starts. An environment variable carries the message, so that
// mpirun and ssh forward it and the arguments of the command stay those of the user.
#pragma once

#include "runtime/train/run_options.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier::rt {

/// The environment variable.
inline constexpr const char *attemptVariable = "ESPALIER_ELASTIC";

/// One start of the ranks of an elastic run.
struct Attempt {
  std::string plan;   ///< replaces the plan of the command line
  std::string hosts;  ///< replaces `launch --hosts`; empty: one host
  std::string report; ///< the failure report, unless the command line names one
  bool resume = false;
  std::vector<RestartRecord> restarts;
};

/// Returns the attempt as the text of the variable.
std::string printAttempt(const Attempt &attempt);

/// Returns the attempt of this process; nothing if an elastic run has not started it. Throws PlanError if the variable
/// has another content.
std::optional<Attempt> attemptOfProcess();

/// Changes the options of a run to those of the attempt.
void apply(const Attempt &attempt, RunOptions &options);

} // namespace espalier::rt
