// Options of `run` that choose the ranks of this process, their rendezvous and their communicator.
#pragma once

#include "runtime/program.h"
#include "runtime/run/run.h"

#include "tools/command_line/command_line.h"

#include <string>

namespace espalier {

/// The communication options of the command line.
struct CommArguments {
  std::string comm; ///< local, shm, mpi or nccl; empty: derived from the launcher
  bool processes = false;
  std::optional<int> nodes, nodeRank;
  std::string rendezvous, tokenFile, rankTable, serverId, deviceRange;
  bool sharesDevices = false;
};

/// Adds the options that set `arguments`.
void addCommOptions(const Verb &run, CommArguments &arguments);

/// Sets options.token and, as far as possible without a plan, options.comm and topology. Runs before the plan is read,
/// so that peers learn about a start-up failure of this process. Throws PlanError.
void chooseRendezvous(const CommArguments &arguments, rt::RunOptions &options);

/// Sets options.comm, topology, and whether this process prints. Returns a description of the topology for rank 0 to
/// print, or an empty string if the command line has no topology options. Throws PlanError.
std::string chooseComm(const CommArguments &arguments, const rt::pb::Plan &plan, const std::string &file,
                       rt::RunOptions &options);

} // namespace espalier
