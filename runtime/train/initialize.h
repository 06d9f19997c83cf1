// Fills a rank's parameters and masters before the first step.
#pragma once

#include "runtime/executor.h"

namespace espalier::rt {

/// Writes initial values into the rank's memory, which is still zero as it was reserved: parameters rounded to their
/// type, masters unrounded; moments and padding stay. Uses the rank's threads.
void initializeParameters(const Program &program, Executor &executor, ThreadPool &pool);

} // namespace espalier::rt
