// The rendezvous address of the launchers in an mpirun or srun job. Nothing provides an address, so the first launcher
// chooses one.
#pragma once

#include "runtime/launch/topology.h"

namespace espalier::rt::launch {

/// Returns the address of the interface on which the launcher of rank 0 listens. This is loopback if all ranks are on
/// one host, else the address that mpirun's daemons use, else this host's name.
std::string channelHost(const Environment &environment, const std::string &hostName);

/// Returns this process's rank according to mpirun or srun, or 0 if neither started the process.
int launchedRank(const Environment &environment);

} // namespace espalier::rt::launch
