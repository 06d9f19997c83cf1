// From a run file to a RunConfig: the one entry to this folder for the other phases.
#pragma once

#include "compiler/import/architecture.h"
#include "compiler/import/diagnostics.h"
#include "compiler/import/run_config.h"
#include "compiler/import/run_keys.h"

#include <string>
#include <vector>

namespace espalier {

/// Pins given on the command line: {"--pin", "tp=8,pp=4"}.
struct PinOption {
  std::string flag, text;
};

struct ImportOptions {
  std::string cluster; ///< NAME, NAME:HOSTSxDEVICES or FILE; wins over the file's `cluster`
  std::string system;  ///< NAME or FILE of the software that the plan is priced for; wins over the file's `system`
  std::optional<int> devices; ///< as if the cluster had so many, in hosts of its size
  int loseNodes = 0;          ///< as if the cluster had so many hosts fewer
  /// Above 0: the planner chooses at this global batch, whatever plan the file states; planner.pin of a file that
  /// leaves the plan to the planner still holds.
  int64_t freeAtBatch = 0;
  std::vector<PinOption> pins;   ///< over planner.pin, later ones over earlier ones
  std::vector<std::string> sets; ///< "section.key=value", applied in order over the file
  std::vector<std::string>
      searchPath; ///< folders with models/, clusters/ and systems/; searched before the default ones
};

/// A value that the file does not say but that follows from it.
struct DerivedValue {
  std::string name, value, reason;
};

struct ImportedRun {
  RunConfig config;                         ///< complete exactly if ok()
  std::optional<Architecture> architecture; ///< the model file, where it is found
  SizeTable sizes;                          ///< its sizes in this run
  Diagnostics diagnostics;                  ///< all errors and warnings of the file
  std::vector<KeyReport> keys;              ///< every key of the file and of --set, in file order
  std::vector<DerivedValue> derived;        ///< parameter count, global batch, devices, ...
  bool ok() const { return !diagnostics.hasErrors(); }
};

/// Reads, checks and resolves a run file. Never throws; all faults are in the result's diagnostics.
ImportedRun importRun(const std::string &file, const ImportOptions &options = {});

/// Takes out of the pins what a run without backward has not: shares of an optimizer, recompute, what a schedule does
/// with many micro-batches. Each of its micro-batches goes through all stages by itself.
void leaveBackward(RunConfig &run);

/// Folders that are searched for models/ and clusters/ after the given ones: those around the run
/// file, $ESPALIER_CONFIGS, and configs/ beside the folders above the executable.
std::vector<std::string> configFolders(const std::string &runFile, const std::vector<std::string> &first);

/// The model files of these folders, by name; of several of one name the first.
std::vector<std::string> modelFiles(const std::vector<std::string> &folders);

} // namespace espalier
