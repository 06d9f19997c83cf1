// Trains with a plan. The command line and the tests share this interface.
#pragma once

#include "runtime/train/run_options.h"

namespace espalier::rt {

/// Runs all ranks of a plan, or, over MPI, the rank of this process. Throws MemoryError before any large allocation,
/// PlanError, DataError, or RankFailure after all ranks have stopped.
RunResult runPlan(const Program &program, const RunOptions &options);

} // namespace espalier::rt
