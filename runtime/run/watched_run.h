// Shared code of all processes that fork ranks and supervise them.
#pragma once

#include "runtime/processes/processes.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/rank_result.h"
#include "runtime/run/run.h"

namespace espalier::rt {

/// Returns the timeouts of ranks: three fifths of --failure-timeout for silence and one fifth for stopping. The rest is
/// a margin.
Patience patienceOf(const RunOptions &options);

/// Returns the timeouts between launchers. Silence gets half of --failure-timeout, because daemons must also be stopped
/// in this time.
Patience launcherPatienceOf(const RunOptions &options);

/// Returns the time for which nobody may move.
StallPatience stallPatienceOf(const RunOptions &options);

/// The peers that supervise other ranks of the run.
struct OtherWatchers {
  std::vector<Neighbour> neighbours = {}; ///< of this host
  launch::Launchers *launchers = nullptr; ///< peers on the control channel; null: none
};

/// Supervises the processes of `world` until they end. Returns the failure for the report; with launchers, the failure
/// of all hosts. If a second signal ended a rank, this process ends in the same way.
std::optional<RankFailure> watchRun(const Program &program, const RunOptions &options, ShmWorld &world,
                                    std::vector<Process> &processes, const OtherWatchers &others);

/// Called in a rank's process after the rank has completed. Closes the output of rank 0 and writes the result for the
/// parent. For errors that rank 0 reports, other ranks write only the status.
void leaveResult(PreparedRun &run, int rank, const ResultFile &results);

/// Returns the result that leaveResult has written. Throws the start-up error of the rank, if any.
RunResult resultOf(const ResultFile &results);

} // namespace espalier::rt
