// mpirun as a child of this process, which asks its ranks to end by a signal that mpirun only passes on.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// Runs `line`, whose first word is mpirun, to its end and returns the status with which this process is to end.
/// SIGTERM, SIGINT and SIGHUP reach the ranks as SIGUSR1; where they end of it the status is 128 and the signal that
/// came here. Throws PlanError where mpirun cannot be started.
int runMpirun(std::vector<std::string> line);

} // namespace espalier
