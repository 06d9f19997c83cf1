// Features that are not implemented: keys of run files and flags of Megatron-LM. A value that asks for such a feature
// is refused, so that it does not silently change a training.
#pragma once

#include "compiler/import/yaml/yaml.h"

namespace espalier {

/// A key or flag of a feature that is not implemented.
struct UnbuiltFeature {
  const char *name;
  const char *neutral; ///< the value that turns the feature off; null if any value asks for the feature
  const char *reason;

  /// Returns whether a value turns the feature off, compared as a switch, a number or a word.
  bool isOff(const YamlNode &value) const;
};

} // namespace espalier
