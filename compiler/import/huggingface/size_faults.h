// Faults of the sizes in a run file that is being imported from a config.json.
#pragma once

#include "compiler/import/model/architecture.h"

#include <string>
#include <vector>

namespace espalier {

/// A size that is out of range, or contradicts another one.
struct SizeFault {
  std::string size;     ///< the key of model_config that is at fault; empty if none is
  SourceLocation where; ///< in a model file, if `size` is empty
  std::string message;
};

/// Returns the faults of the model in `runFile`, a run file with one key per line, in the order of its lines.
std::vector<SizeFault> sizeFaults(const Architecture &architecture, const std::string &runFile);

} // namespace espalier
