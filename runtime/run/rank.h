// Runs one rank, either as a thread or as a process.
#pragma once

#include "runtime/comm/comm.h"
#include "runtime/train/trainer.h"

#include <functional>
#include <memory>

namespace espalier::rt {

/// The environment of one rank.
struct RankPlace {
  int rank = 0;
  bool isFirstHere = true; ///< the lowest rank of its process
  int threads = 1, spins = 0;
  DevicePlace device = {.ordinal = rank};
  std::function<std::unique_ptr<Communicator>()> open;
  std::function<void(const Failure &)> abort; ///< stops all ranks; never throws
  std::function<void()> leave = [] {};        ///< called before the rank's memory is freed
  RankStatus *status = nullptr;               ///< where the rank publishes its status
};

/// Runs one rank to its end, or to the first failure of any rank. Returns whether the rank completed.
bool runRank(RunContext &context, const RankPlace &place);

/// Returns how often a waiting thread polls before it sleeps. Returns 0 if the host has more threads than cores.
int spinsFor(int hostThreads);

/// Calls `abort` with the error that `rank` has caught. `executor` is null if it was not created yet. Never throws,
/// even without free memory, because peers wait for the call.
void abortFor(const std::function<void(const Failure &)> &abort, int rank, const Executor *executor,
              const std::exception &error) noexcept;

} // namespace espalier::rt
