// From a plan one rank's program: coordinates and seed put in, own parts chosen, transfers made known to the device.
#pragma once

#include "runtime/program.h"

namespace espalier::rt {

RankProgram prepareRank(const pb::Plan &plan, const Mesh &mesh, int rank, Device &device);

/// The bucket + 1 whose gradient a library call's destination is, by its value; 0 for none.
uint32_t bucketOf(const pb::Plan &plan, const pb::LibraryCall &call);

} // namespace espalier::rt
