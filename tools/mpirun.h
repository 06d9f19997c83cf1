// Runs mpirun as a child process. Termination requests reach the ranks as a signal that mpirun only forwards.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Runs `line`, whose first word is mpirun, and returns the exit status for this process. Forwards SIGTERM, SIGINT and
/// SIGHUP to the ranks as SIGUSR1. If the ranks end because of it, the status is 128 + the original signal. Throws
/// PlanError if mpirun cannot be started.
int runMpirun(std::vector<std::string> line);

} // namespace espalier
