// Checks a plan that the user pinned. Reports all errors, each with the nearest change that works.
#pragma once

#include "compiler/import/run/run_reader.h"

namespace espalier {

/// Checks reader.config().pins against the model and the cluster. Unset pins are not checked.
void checkPins(const RunReader &reader);

} // namespace espalier
