// Writes the RUNs of layer calls, and gathers sharded parameters before the calls that read them.
#pragma once

#include "compiler/link/list_context.h"
#include "compiler/link/place_gathers.h"

namespace espalier {

/// Writes RUNs in the order of the schedule.
class CallRunner {
public:
  explicit CallRunner(const ListContext &context) : context(context) {}

  /// Decides where parameters are gathered, and starts the gathers that precede the first RUN. `trains` tells a
  /// training step from an evaluation.
  void begin(bool trains);

  /// Runs one or more layer calls. If parameters are gathered, runs the calls one at a time and waits for each call's
  /// gathers before it.
  void run(exec::Role role, int chunk, uint32_t firstCall, uint32_t calls, uint32_t microBatch, bool backwards = false,
           const std::set<uint32_t> &first = {});

private:
  void addRuns(const planner::Action &action, exec::Role role, std::vector<CallRun> &runs) const;
  void startGathers();

  const ListContext &context;
  Gathers gathers;
  size_t ran = 0; ///< number of RUNs so far, which indexes `gathers`
};

} // namespace espalier
