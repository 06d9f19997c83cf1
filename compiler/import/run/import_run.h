// Imports a run file as a RunConfig. This is the only entry point to this folder for other phases.
#pragma once

#include "compiler/import/model/architecture.h"
#include "compiler/import/run/run_config.h"
#include "compiler/import/run/run_keys.h"
#include "compiler/import/yaml/diagnostics.h"

#include <string>
#include <vector>

namespace espalier {

struct HfModel;

/// Pins given on the command line, such as {"--pin", "tp=8,pp=4"}.
struct PinOption {
  std::string flag, text;
};

/// Command-line options that override a run file.
struct ImportOptions {
  std::string cluster; ///< NAME, NAME:HOSTSxDEVICES or FILE; overrides the file's `cluster`
  /// The cluster of a file that names none and whose context.device_target is not Ascend: this machine, or an error
  /// that lists the clusters. `isHere`: this machine whatever the target is, because the run starts here at once.
  bool needsCluster = false, isHere = false;
  std::string system; ///< NAME or FILE of the software whose performance is predicted; overrides the file's `system`
  std::optional<int> devices; ///< assumes this number of devices, in hosts of the cluster's size
  int loseNodes = 0;          ///< assumes this many fewer hosts
  /// If above 0, the planner chooses the plan at this global batch and ignores the plan in the file. planner.pin of a
  /// file that leaves the plan to the planner still applies.
  int64_t freeAtBatch = 0;
  std::vector<PinOption> pins;   ///< override planner.pin; later pins override earlier ones
  std::vector<std::string> sets; ///< "section.key=value", applied to the file in order
  std::vector<std::string>
      searchPath; ///< folders with models/, clusters/ and systems/, searched before the default ones
};

/// A value that is derived from the file.
struct DerivedValue {
  std::string name, value, reason;
};

/// The result of importing a run file.
struct ImportedRun {
  RunConfig config;                            ///< complete if and only if ok()
  std::optional<Architecture> architecture;    ///< the model file, if it was found
  SizeTable sizes;                             ///< the model file's sizes in this run
  Diagnostics diagnostics;                     ///< all errors and warnings of the file
  std::vector<KeyReport> keys;                 ///< every key of the file and of --set, in file order
  std::map<std::string, std::string> replaced; ///< key -> the value of the file that --set replaces, with its place
  std::vector<DerivedValue> derived;           ///< parameter count, global batch, devices, ...
  /// The run file as it was read, with its bases, --set and the other options, and the model file with its bases. Both
  /// are complete: they are read again without other files, except those that they name as data or weights.
  std::string runText, modelText;
  bool ok() const { return !diagnostics.hasErrors(); }
  /// Returns the model, for the functions that write a config.json. Refers to this run.
  operator HfModel() const;
};

/// Reads, checks and resolves a run file. Never throws. All errors are in the result's diagnostics.
ImportedRun importRun(const std::string &file, const ImportOptions &options = {});

/// Resets the pins that do not apply to a run without a backward pass: optimizer sharding, recomputation, and
/// pipelining over micro-batches. Each micro-batch passes through all stages on its own.
void leaveBackward(RunConfig &run);

} // namespace espalier
