// Supervises an elastic run: starts its ranks, and after a failure starts those that are left with another plan.
#pragma once

#include "runtime/elastic/attempt.h"
#include "runtime/elastic/plans.h"
#include "runtime/launch/rank_table.h"

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace espalier::rt {

/// The limits of an elastic run.
struct ElasticLimits {
  int minRanks = 1, maxRestarts = 3;
};

/// The input of an elastic run.
struct ElasticJob {
  ElasticLimits limits;
  std::vector<ElasticPlan> plans; ///< those with the most ranks first
  std::vector<launch::Host> hosts;
  bool isCuda = false;              ///< slots are devices
  std::filesystem::path checkpoint; ///< folder of the checkpoints, which this process reads
  std::filesystem::path report;     ///< --failure-report; empty: none
  bool resume = false;              ///< the first attempt resumes, too
  /// Returns the hosts among `addresses` that answer. Empty: the run has this host only.
  std::function<std::vector<std::string>(const std::vector<std::string> &addresses)> answering;
  int deathSignal = SIGKILL; ///< to the attempt if this process dies
  /// Runs an attempt in a child process and returns the exit code of the child, or throws the exceptions of `main`. The
  /// child is a copy of this process, with the inputs that this process has opened. Empty: the child executes the
  /// command of this process, which finds the attempt in its environment.
  std::function<int(const Attempt &)> runAttempt;
};

/// Runs the command of this process repeatedly, each time as an Attempt, until the run ends: at its last step, by a
/// signal, by a user error, or because too few ranks or restarts are left. After a failure, the plan with the most
/// ranks that fits the slots that are left goes on from the last finished checkpoint. After each save, lost slots and
/// hosts that answer again are taken back if a plan with more ranks fits then. Returns the exit status, also in each
/// child that has called `job.runAttempt`. Throws PlanError if no plan fits the slots at the start.
int runElastic(const ElasticJob &job);

} // namespace espalier::rt
