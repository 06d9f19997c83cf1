// The arguments of `plan`, which prints the best plans of a run with time, memory and reasons. Needs no device.
#pragma once

#include "compiler/import/run/import_run.h"

#include <optional>
#include <string>

namespace espalier {

/// The command-line arguments of `plan`.
struct PlanArguments {
  std::string file;
  ImportOptions import; ///< --cluster and --set
  std::string target = "cpu";
  bool all = false; ///< also show plans that cannot be executed yet
  bool json = false;
  std::optional<int> devices;        ///< assume this number of devices
  std::string sweep;                 ///< "devices=64..1024": the best plan for each number of devices
  std::string whatIf;                ///< "link=2x,memory=141GB,devices=128": the best plan after each change
  std::optional<double> price;       ///< of a device hour, for the sweep
  std::string measured;              ///< step of the file's own plan, to which the rates are scaled: "12.4s"
  int loseNodes = 0;                 ///< assume this many fewer hosts
  std::optional<std::string> pin;    ///< "tp=8,pp=4": only plans with these properties
  std::optional<std::string> whyNot; ///< explain why this plan is not chosen: "tp=4,pp=12"
  std::string trace;                 ///< file for the trace of the simulated step
  std::string report;                ///< file for the report as HTML
  std::string exportTo;              ///< megatron, mindformers or torchtitan
  std::string diff;                  ///< script that is printed with the flags of the answer
};

} // namespace espalier
