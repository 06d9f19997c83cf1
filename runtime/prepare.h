// Specializes a plan for one rank: substitutes coordinates and seed, selects shards, and registers transfers on the
// device.
#pragma once

#include "runtime/program.h"

namespace espalier::rt {

/// Returns the program of `rank` and registers its transfers on `device`.
RankProgram prepareRank(const pb::Plan &plan, const Mesh &mesh, int rank, Device &device);

/// Returns the ranks among which a transfer of `rank` moves data: of a send or receive the peer, of a copy none.
std::vector<int> membersOf(const pb::Plan &plan, const Mesh &mesh, int rank, const pb::Transfer &transfer);

/// Returns 1 + the bucket whose gradient is the call's destination, or 0 if there is none.
uint32_t bucketOf(const pb::Plan &plan, const pb::LibraryCall &call);

} // namespace espalier::rt
