// `run --comm`: whether ranks are threads, processes of this host, or processes that a launcher started.
#pragma once

#include "runtime/program.h"
#include "runtime/train/run.h"

#include <string>

namespace espalier {

/// What the command line says of it.
struct CommWords {
  std::string comm; ///< local, shm, mpi or nccl; empty: what started this process says it
  bool processes = false;
};

/// Sets options.comm, and of MPI the ranks of this host and whether this process speaks. Returns the topology in words,
/// to be printed by rank 0; empty where nothing started this process as one of several. Throws PlanError.
std::string chooseComm(const CommWords &words, const rt::pb::Plan &plan, const std::string &file,
                       rt::RunOptions &options);

} // namespace espalier
