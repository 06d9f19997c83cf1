// What the process that starts ranks as processes and watches them does, whatever they share.
#pragma once

#include "runtime/launch/processes.h"
#include "runtime/train/prepared_run.h"
#include "runtime/train/run.h"
#include "runtime/train/told_result.h"

namespace espalier::rt {

/// Three fifths of --failure-timeout for silence, one for the others' end; the rest for who is slow.
Patience patienceOf(const RunOptions &options);

/// Of launchers with each other: half of it for silence, as their daemons have to be ended, too.
Patience launcherPatienceOf(const RunOptions &options);

/// Who watches other ranks of the run.
struct OtherWatchers {
  std::vector<Neighbour> neighbours = {}; ///< of this host
  launch::Launchers *launchers = nullptr; ///< that hear of each other over the control channel; null for none
};

/// Watches the processes of `world` to their end. A failure of any rank is returned as the report has it, with
/// launchers that of all hosts. Where a rank was told to end by a second signal, this process ends as that rank did.
std::optional<RankFailure> watchRun(const Program &program, const RunOptions &options, ShmWorld &world,
                                    std::vector<Process> &processes, const OtherWatchers &others);

/// In the process of a rank that has done its work: ends what rank 0 writes, and leaves the result for who watches. Of
/// all that rank 0 says, others tell their status.
void leaveResult(PreparedRun &run, int rank, const ResultFile &results);

/// What leaveResult has left. Throws what the rank was refused.
RunResult resultOf(const ResultFile &results);

} // namespace espalier::rt
