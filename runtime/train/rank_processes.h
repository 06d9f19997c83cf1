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

/// What this launcher of `ranks` says of itself to the others.
launch::Member memberOf(const Program &program, const std::vector<int> &ranks);

} // namespace espalier::rt
