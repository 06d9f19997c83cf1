// The verb `import-args`: a Megatron-LM command line as a run file.
#pragma once

#include <string>

namespace espalier {

struct ArgsArguments {
  std::string file;
  std::string output;       ///< run file to write; empty: standard output
  std::string cluster;      ///< NAME or NAME:HOSTSxDEVICES
  std::string base;         ///< run file that holds what the flags do not say
  std::string ignoredFlags; ///< of the script, as if they were not there: "fp8-format,--own-flag"
};

/// Writes the run file, and what became of each flag to standard error. Returns 0, or 2 for errors of the input.
int importArgsVerb(const ArgsArguments &arguments);

} // namespace espalier
