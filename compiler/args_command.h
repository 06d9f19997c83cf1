// The verb `import-args`: converts a Megatron-LM command line to a run file.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// The command-line arguments of `import-args`.
struct ArgsArguments {
  std::string file;
  std::string output;                   ///< run file to write; empty means standard output
  std::string cluster;                  ///< NAME or NAME:HOSTSxDEVICES
  std::string base;                     ///< run file with the values that the flags do not give
  bool json = false;                    ///< print the effect of each flag and the run file as JSON
  std::vector<std::string> arguments;   ///< of the script: "1=VALUE"
  std::vector<std::string> environment; ///< of the script: "NAME=VALUE"
  std::string ignoredFlags;             ///< flags of the script to ignore: "fp8-format,--own-flag"
};

/// Writes the run file, and the effect of each flag to standard error. Returns 0, or 2 for input errors.
int importArgsVerb(const ArgsArguments &arguments);

} // namespace espalier
