// The life of one rank, whether it is a thread or a process.
#pragma once

#include "runtime/comm/comm.h"
#include "runtime/train/trainer.h"

#include <functional>
#include <memory>

namespace espalier::rt {

/// How a rank stands among the others.
struct RankPlace {
  int rank = 0;
  bool isFirstHere = true; ///< no rank below it is in its process
  int threads = 1, spins = 0;
  DevicePlace device = {.ordinal = rank};
  std::function<std::unique_ptr<Communicator>()> open;
  std::function<void(const Failure &)> abort; ///< stops all ranks; throws nothing
  std::function<void()> leave = [] {};        ///< called before its memory goes
  StatusPage *page = nullptr;                 ///< where it shows what it does
};

/// Runs one rank to its end or to the first failure of any; whether it came to its end.
bool runRank(RunContext &context, const RankPlace &place);

/// Polls before a waiting thread sleeps, where this host has so many of them: none unless each has a core of its own.
int spinsFor(int hostThreads);

/// Calls `abort` with what `rank` has caught; `executor` is null before there is one. Throws nothing, as memory may
/// have run out: the others wait for this word.
void abortFor(const std::function<void(const Failure &)> &abort, int rank, const Executor *executor,
              const std::exception &error) noexcept;

} // namespace espalier::rt
