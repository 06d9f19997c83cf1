// The options of a training run, which `run` and `train` share.
#pragma once

#include "runtime/elastic/elastic_run.h"
#include "runtime/run/run.h"
#include "tools/run/choose_comm.h"

#include "tools/command_line/command_line.h"

#include <string>

namespace espalier {

/// The command-line arguments of a run.
struct RunArguments {
  std::string plan, device, report, dumpGradients, dumpParameters;
  bool json = false;  ///< print one object at the end in place of the log
  bool quiet = false; ///< no log and no notes, only warnings and errors
  bool allowsNan = false, savesHf = false, requiresSigner = false;
  CommArguments comm;
  rt::RunOptions options;
  Option steps;
  Verb evaluation; ///< the options of evaluations
  bool isElastic = false;
  rt::ElasticLimits elastic;
};

/// Checks before any work that all output files can be written, that the port of --prometheus is free, and that the
/// libraries of the device are there. Throws PlanError. An empty `target` is cpu.
void requirePlaces(const RunArguments &arguments, const std::string &target);

/// Adds all options except the plan.
void addRunOptions(const Verb &run, RunArguments &arguments);

/// Adds the plan, addRunOptions and the options of elastic runs.
void addRunArguments(const Verb &run, RunArguments &arguments);

/// Runs the plan file and returns the exit code. Throws the exceptions of rt::runPlan.
int runPlanFile(RunArguments &arguments);

} // namespace espalier
