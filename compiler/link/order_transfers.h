// Defines one global order of all transfers between the stages of an entry (runtime/README.md, section 3). Every stage
// starts its transfers in this order, so that sends and receives cannot deadlock.
#pragma once

#include "planner/model/schedule.h"

#include <vector>

namespace espalier {

/// The transfers of a chunk, each started once per micro-batch: Inputs copies from the host, Out and In send and
/// receive the stream, DIn sends the cotangent of the incoming stream, DOut receives the cotangent of the outgoing
/// stream.
enum class FlightKind { Inputs, Out, In, DIn, DOut };

/// One in-flight transfer of a stage.
struct StageFlight {
  FlightKind kind = FlightKind::Inputs;
  int chunk = 0; ///< index within the stage
  int microBatch = 0;
  bool operator==(const StageFlight &) const = default;
};

/// Returns, by stage, its sends and receives in the global order. Transfers are ordered by the time at which their
/// values are made, if each RUN takes one unit of time. Ties are ordered by the chunk that makes the value. So if two
/// neighbours exchange values of the same time, the forward transfer comes first. Consecutive chunks on one stage need
/// no transfer.
std::vector<std::vector<StageFlight>> orderTransfers(const planner::ScheduleTable &table);

} // namespace espalier
