// Runs mpirun as a child process. Termination requests reach the ranks as a signal that mpirun only forwards.
#pragma once

#include "runtime/launch/rank_table.h"

#include <string>
#include <vector>

namespace espalier {

/// Returns the words that start a process per slot of the hosts, up to the command. `ssh` replaces ssh if it is not
/// empty.
std::vector<std::string> mpirunLine(const std::vector<rt::launch::Host> &hosts, const std::string &ssh);

/// ssh options for a host that does not answer. The default timeout is two minutes.
inline constexpr const char *connectOptions = "-o ConnectTimeout=10";

/// Runs `line`, whose first word is mpirun, and returns the exit status for this process. Forwards SIGTERM, SIGINT and
/// SIGHUP to the ranks as SIGUSR1. If the ranks end because of it, the status is 128 + the original signal. Throws
/// PlanError if mpirun cannot be started.
int runMpirun(std::vector<std::string> line);

} // namespace espalier
