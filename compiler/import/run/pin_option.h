// Parses pins from the command line, `tp=8,pp=4,mbs=1`, into the keys of planner.pin, so that both are checked in the
// same way.
#pragma once

#include "compiler/import/yaml/yaml.h"

#include <string>
#include <vector>

namespace espalier {

/// Splits "tp=8,stage_layers=[19,21]" at the commas between pins.
std::vector<std::string> pinsOf(const std::string &text);

/// Returns a map planner: {pin: {...}} with the pins in `text`. Keys are those of planner.pin and the short names mbs,
/// sp, vpp and m. stage_layers is written as 5+7+7+5. Unknown keys, keys without a value and repeated keys are errors
/// at their column of `flag`. The run-file checks verify types and ranges.
YamlPtr readPinOption(const std::string &flag, const std::string &text, Diagnostics &diagnostics);

} // namespace espalier
