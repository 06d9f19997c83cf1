// Pins as one word of the command line, `tp=8,pp=4,mbs=1`: read into the keys of planner.pin, so that one set of
// checks holds for both.
#pragma once

#include "compiler/import/yaml.h"

#include <string>

namespace espalier {

/// A map planner: {pin: {...}} of what `text` fixes. Keys are those of planner.pin and the short names mbs, sp, vpp and
/// m; stage_layers is written 5+7+7+5. Unknown keys, keys without a value and keys given twice are errors at their
/// column of `flag`. Types and ranges are left to the checks of the run file.
YamlPtr readPinOption(const std::string &flag, const std::string &text, Diagnostics &diagnostics);

} // namespace espalier
