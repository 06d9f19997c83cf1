// The one order of all transfers between stages of an entry (runtime/README.md, section 3). Every stage starts its
// transfers in this order, so that a send and its receive never stand crosswise.
#pragma once

#include "planner/model/schedule.h"

#include <vector>

namespace espalier {

/// Transfers of a chunk, one flight per micro-batch: its inputs (a copy from the host), its stream sent and received,
/// the cotangent of its incoming stream sent, that of its outgoing stream received.
enum class FlightKind { Inputs, Out, In, DIn, DOut };

struct StageFlight {
  FlightKind kind = FlightKind::Inputs;
  int chunk = 0; ///< of the stage
  int microBatch = 0;
  bool operator==(const StageFlight &) const = default;
};

/// By stage: its sends and receives in the order of all. A transfer stands where its value is made when each RUN takes
/// one unit of time; those of one moment in the order of the chunks that make them. So of two neighbours that exchange
/// values of one moment the forward one comes first. Neighbouring chunks of one stage need no transfer.
std::vector<std::vector<StageFlight>> orderTransfers(const planner::ScheduleTable &table);

} // namespace espalier
