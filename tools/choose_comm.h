// `run`: which ranks this process has, how they find the others, and how they talk.
#pragma once

#include "runtime/program.h"
#include "runtime/train/run.h"

#include "compiler/command_line.h"

#include <string>

namespace espalier {

/// What the command line says of it.
struct CommWords {
  std::string comm; ///< local, shm, mpi or nccl; empty: what started this process says it
  bool processes = false;
  std::optional<int> nodes, nodeRank;
  std::string rendezvous, tokenFile, rankTable, serverId, deviceRange;
  bool sharesDevices = false;
};

/// Adds the options that fill `words`.
void addCommOptions(const Verb &run, CommWords &words);

/// Before the plan is read: sets options.token and, as far as it needs no plan to know them, options.comm and topology,
/// so that who waits for this process can be told why it does not come. Throws PlanError.
void chooseMeeting(const CommWords &words, rt::RunOptions &options);

/// Sets options.comm, topology, and whether this process speaks. Returns the topology in words, to be printed
/// by rank 0; empty where nothing was said of it. Throws PlanError.
std::string chooseComm(const CommWords &words, const rt::pb::Plan &plan, const std::string &file,
                       rt::RunOptions &options);

} // namespace espalier
