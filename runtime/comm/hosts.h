// The communicator of ranks on several hosts whose tensors move over NCCL. Control messages between the ranks go over
// their launchers' control channel.
#pragma once

#include "runtime/comm/shm.h"
#include "runtime/launch/all_gather.h"

#include <memory>

namespace espalier::rt {

/// Makes the communicator of rank `rank` of `ranks`, which its launcher started on `host`. It supports an ALL_GATHER of
/// at most one buffer and barriers; other operations throw PlanError. `host` must outlive it. An abort of `host` also
/// stops this rank.
std::unique_ptr<Communicator> openHosts(ShmWorld &host, int rank, int ranks, launch::RankChannel channel);

} // namespace espalier::rt
