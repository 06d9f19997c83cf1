// What a plan that a person fixed must satisfy. All faults are reported, each with the nearest
// change that works.
#pragma once

#include "compiler/import/run_reader.h"

namespace espalier {

/// Checks reader.config().pins against the model and the cluster. Unset pins are not checked.
void checkPins(const RunReader &reader);

/// The nearest divisors of `number` below and above `value`, as text: "5 or 10"; one of them may be
/// absent.
std::string nearestDivisors(int64_t number, int64_t value);

} // namespace espalier
