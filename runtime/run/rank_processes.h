// Checks and descriptions that every launcher of rank processes needs before it starts them.
#pragma once

#include "runtime/launch/control_channel.h"
#include "runtime/program.h"
#include "runtime/run/run.h"

#include <span>

namespace espalier::rt {

/// Returns the device of a rank of this host.
DevicePlace deviceOf(const RunOptions &options, int rank);

/// Checks that the devices for these ranks exist, and logs them if this process logs. Throws PlanError or MemoryError.
void requireDevices(const Program &program, const RunOptions &options, std::span<const int> ranks);

/// Throws PlanError for options whose results cannot be returned from another process.
void requireRecordsOnly(const RunOptions &options);

/// Describes this launcher for its peers.
launch::Member describeProcess(const launch::Topology &topology);
/// Describes this launcher and the plan that it runs.
launch::Member memberOf(const Program &program, const launch::Topology &topology);

/// The time for which separately started processes wait for each other.
constexpr launch::Milliseconds startTogether{60000};

} // namespace espalier::rt
