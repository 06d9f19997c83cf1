// Where the launchers of ranks that mpirun or srun started meet: nobody has told them, so the first one chooses.
#pragma once

#include "runtime/launch/topology.h"

namespace espalier::rt::launch {

/// The address of the one interface on which the launcher of rank 0 listens: loopback where all ranks are on one host,
/// else that by which mpirun's own daemons reach this host, else this host's name.
std::string channelHost(const Environment &environment, const std::string &hostName);

/// This process's rank as mpirun or srun says it; 0 where nothing does.
int launchedRank(const Environment &environment);

} // namespace espalier::rt::launch
