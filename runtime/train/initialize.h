// Initializes a rank's parameters and master weights before the first step.
#pragma once

#include "runtime/executor.h"

#include <set>

namespace espalier::rt {

/// Writes the initial values into the rank's memory: parameters rounded to their type, master weights in f32. The
/// memory must still be zero, because moments and padding are not written. Uses the rank's threads. `only` names
/// the parameters to initialize; null: all.
void initializeParameters(const Program &program, Executor &executor, ThreadPool &pool,
                          const std::set<std::string> *only = nullptr);

} // namespace espalier::rt
