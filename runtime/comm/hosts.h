// Ranks of several hosts whose tensors go another way (NCCL): what they tell each other goes over their launchers'
// control channel.
#pragma once

#include "runtime/comm/shm.h"
#include "runtime/launch/words.h"

#include <memory>

namespace espalier::rt {

/// The end of rank `rank` of `ranks`, which its launcher started with those of `host`. It gathers words of at most one
/// buffer and lets groups meet; other operations throw PlanError. `host` outlives it, and what stops it stops this
/// rank.
std::unique_ptr<Communicator> openHosts(ShmWorld &host, int rank, int ranks, launch::RankLine line);

} // namespace espalier::rt
