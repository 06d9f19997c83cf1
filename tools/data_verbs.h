// What the files of the data verbs share: errors to exit status, patterns to file names.
#pragma once

#include "runtime/data/data_error.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace espalier {

/// Runs `work`; a DataError becomes its message on standard error and exit status 2.
template <typename Work> std::function<void()> reportingErrors(Work work) {
  return [work] {
    try {
      work();
    } catch (const rt::DataError &error) {
      std::fprintf(stderr, "%s\n", error.what());
      throw CLI::RuntimeError(2);
    }
  };
}

/// Names as given, patterns as the files they match, in the order of their names. Throws DataError
/// for a pattern without a match.
std::vector<std::string> expandPatterns(const std::vector<std::string> &patterns);

void addTrainTokenizer(CLI::App &data);

} // namespace espalier
