// Model files made from parts.
#pragma once

#include "compiler/import/yaml/yaml.h"

namespace espalier {

/// Returns the model file `root` with the parts that its segments name written out: a segment with `parts: [a, b]` gets
/// the parameters and then the ops of these entries of `parts:`, in this order, before its own. A parameter of the
/// segment is merged over that of the part. The nodes keep the locations of the part. Reports names that are no part.
YamlPtr withParts(const YamlPtr &root, Diagnostics &diagnostics);

} // namespace espalier
