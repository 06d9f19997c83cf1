// Fills a rank's parameters, masters and moments before the first step.
#pragma once

#include "runtime/executor.h"

namespace espalier::rt {

/// Writes initial values into the executor's arena: parameters rounded to their type, masters
/// unrounded, moments and padding zero. Uses the rank's threads.
void initializeParameters(const Program &program, Executor &executor, ThreadPool &pool);

} // namespace espalier::rt
