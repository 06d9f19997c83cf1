// `espalier bench plans`: compares predictions with tables of published runs.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// The options of `bench plans`.
struct PlansArguments {
  std::vector<std::string> files;
  bool json = false, rows = false;
};

/// Prints the errors of each table. Returns the exit code. Throws UsageError for a file that cannot be read.
int benchPlans(const PlansArguments &arguments);

} // namespace espalier
