// Ranks that share no memory with rank 0: each opens what the run needs for itself, and they agree on whether all can.
#pragma once

#include "runtime/train/prepared_run.h"
#include "runtime/train/told_result.h"

#include <functional>
#include <optional>

namespace espalier::rt {

/// Opens what the run needs for `rank`, on all ranks at once: rank 0 first, as it holds the checkpoints' folder. Where
/// `data`: where this process has it open. Where
/// any is refused something all throw, one of them what it was refused, the others ReportedElsewhere.
void prepareApart(std::optional<PreparedRun> &prepared, const Program &program, const RunOptions &options,
                  Agreement &agreement, int rank, const std::optional<RunData> &data = std::nullopt);

/// Does a rank's work; the status of its process. What it was refused is left in `results`: its launcher tells.
int runTold(const ResultFile &results, const std::function<int()> &work);

} // namespace espalier::rt
