// What every launcher of ranks that are processes asks and says before there are any.
#pragma once

#include "runtime/launch/control_channel.h"
#include "runtime/program.h"
#include "runtime/train/run.h"

#include <span>

namespace espalier::rt {

/// Of a rank of this host.
DevicePlace deviceOf(const RunOptions &options, int rank);

/// What the ranks of this process find here; says it, where this one speaks. Throws PlanError or MemoryError.
void requireDevices(const Program &program, const RunOptions &options, std::span<const int> ranks);

/// Throws PlanError for what processes cannot bring home.
void requireRecordsOnly(const RunOptions &options);

/// What a launcher says of itself to the others: who it is, and which plan it has.
launch::Member describeProcess(const launch::Topology &topology);
launch::Member memberOf(const Program &program, const launch::Topology &topology);

/// How long processes that were started apart wait for each other.
constexpr launch::Milliseconds startTogether{60000};

} // namespace espalier::rt
