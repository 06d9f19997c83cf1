// From a run file to a RunConfig: the one entry to this folder for the other phases.
#pragma once

#include "compiler/import/diagnostics.h"
#include "compiler/import/run_config.h"
#include "compiler/import/run_keys.h"

#include <string>
#include <vector>

namespace espalier {

struct ImportOptions {
  std::string cluster; ///< NAME, NAME:HOSTSxDEVICES or FILE; wins over the file's `cluster`
  std::vector<std::string> sets; ///< "section.key=value", applied in order over the file
  std::vector<std::string>
      searchPath; ///< folders with models/ and clusters/; searched before the default ones
};

/// A value that the file does not say but that follows from it.
struct DerivedValue {
  std::string name, value, reason;
};

struct ImportedRun {
  RunConfig config;                  ///< complete exactly if ok()
  Diagnostics diagnostics;           ///< all errors and warnings of the file
  std::vector<KeyReport> keys;       ///< every key of the file and of --set, in file order
  std::vector<DerivedValue> derived; ///< parameter count, global batch, devices, ...
  bool ok() const { return !diagnostics.hasErrors(); }
};

/// Reads, checks and resolves a run file. Never throws; all faults are in the result's diagnostics.
ImportedRun importRun(const std::string &file, const ImportOptions &options = {});

/// Folders that are searched for models/ and clusters/ after the given ones: those around the run
/// file, $ESPALIER_CONFIGS, and configs/ beside the folders above the executable.
std::vector<std::string> configFolders(const std::string &runFile,
                                       const std::vector<std::string> &first);

} // namespace espalier
