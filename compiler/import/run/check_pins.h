// Checks a plan that the user pinned. Reports all errors, each with the nearest change that works.
#pragma once

#include "compiler/import/run/run_reader.h"

namespace espalier {

/// Checks reader.config().pins against the model and the cluster. Unset pins are not checked.
void checkPins(const RunReader &reader);

/// Returns the nearest divisors of `number` below and above `value` as text, such as "5 or 10". Either may be absent.
std::string nearestDivisors(int64_t number, int64_t value);

} // namespace espalier
