// A failed run for programs: who was first, where it stood, and how to go on.
#pragma once

#include "runtime/program.h"
#include "runtime/train/run.h"

namespace espalier::rt {

/// Writes options.failureReport, if one is wanted: a JSON object, null for what is not known. Says aloud where it
/// cannot be written, as the failure itself is told anyway.
void writeFailureReport(const Program &program, const RunOptions &options, const Failure &failure);

} // namespace espalier::rt
