// The verb `plan`: the best plans of a run with time, memory and reasons; no device is needed.
#pragma once

#include "compiler/import/import_run.h"

#include <optional>
#include <string>

namespace espalier {

struct PlanArguments {
  std::string file;
  ImportOptions import; ///< --cluster and --set
  std::string target = "cpu";
  bool all = false; ///< also plans that cannot be executed yet
  bool json = false;
  std::optional<int> devices;        ///< what if the cluster had so many
  int loseNodes = 0;                 ///< what if the cluster had so many hosts fewer
  std::optional<std::string> pin;    ///< "tp=8,pp=4": only plans like this
  std::optional<std::string> whyNot; ///< "tp=4,pp=12"
  std::string trace;                 ///< file for the simulated step
  std::string exportTo;              ///< megatron, mindformers or torchtitan
};

/// Prints the answer. Returns 0, 2 for errors of the input, 3 when nothing fits.
int planVerb(const PlanArguments &arguments);

} // namespace espalier
