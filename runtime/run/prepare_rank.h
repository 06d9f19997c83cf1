// Start-up of ranks that share no memory with rank 0. Each rank opens its own inputs, and all ranks agree on whether
// every rank succeeded.
#pragma once

#include "runtime/run/prepared_run.h"
#include "runtime/run/rank_result.h"

#include <functional>
#include <optional>

namespace espalier::rt {

/// Opens the inputs of the run for `rank`. All ranks call this function; rank 0 runs first, because it locks the
/// checkpoint folder. `data` holds the inputs that this process has already opened. If any rank fails, one rank throws
/// its error and all others throw ReportedElsewhere.
void prepareRank(std::optional<PreparedRun> &prepared, const Program &program, const RunOptions &options,
                 Agreement &agreement, int rank, const std::optional<RunData> &data = std::nullopt);

/// Runs the work of a rank and returns the exit status of its process. Writes a start-up error to `results`, which the
/// launcher reads and reports.
int runReporting(const ResultFile &results, const std::function<int()> &work);

} // namespace espalier::rt
