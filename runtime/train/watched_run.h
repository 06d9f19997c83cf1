// What the process that starts ranks as processes and watches them does, whatever they share.
#pragma once

#include "runtime/launch/processes.h"
#include "runtime/train/run.h"
#include "runtime/train/told_result.h"

namespace espalier::rt {

/// Three fifths of --failure-timeout for silence, one for the others' end; the rest for who is slow.
Patience patienceOf(const RunOptions &options);

/// Watches the processes of `world` to their end. A failure of any rank is returned as the report has it; with `others`
/// it is that of all hosts. Where a rank was told to end by a second signal, this process ends as that rank did.
std::optional<RankFailure> watchRun(const Program &program, const RunOptions &options, ShmWorld &world,
                                    std::vector<Process> &processes, launch::Launchers *others);

/// What rank 0's process or, over MPI, any other one has left. Throws what it was refused.
RunResult resultOf(const ResultFile &results);

} // namespace espalier::rt
