// The settings of a run's low-rank adapters.
#pragma once

#include "compiler/import/yaml/source_location.h"
#include "format/regex.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace espalier {

/// The settings of a run's adapters.
struct AdapterConfig {
  int64_t rank = 8;
  double alpha = 16, dropout = 0.01;
  /// The modules that get adapters: one regular expression, which must match from the beginning of a module's name, or
  /// a list of names, each of which a module's name must end with.
  std::vector<std::string> targets;
  std::shared_ptr<const rt::Regex> pattern; ///< the regular expression; null: names
  SourceLocation where;                     ///< of the targets

  /// Returns whether the targets select the module. Throws DataError if the expression exceeds its step limit.
  bool selects(const std::string &module) const;
};

} // namespace espalier
