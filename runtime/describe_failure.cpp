// Where a rank stands, in words.
#include "runtime/executor.h"

#include <fmt/format.h>

namespace espalier::rt {

/// "RUN backward of block.2 .. block.0, micro-batch 1" or "WAIT in, out/3": flights of other micro-batches than 0 say
/// theirs.
std::string Executor::actionText() const {
  const pb::Plan &plan = source.plan();
  const pb::Stage &stage = plan.stages(program.stage);
  const PreparedAction &action = program.actions[position.action];
  if (action.kind == PreparedAction::Run) {
    uint32_t first = action.calls.first, last = first + action.calls.count - 1;
    if (action.backwards)
      std::swap(first, last);
    std::string calls = stage.calls(first).name();
    if (first != last)
      calls += " .. " + stage.calls(last).name();
    return fmt::format("RUN {} of {}, micro-batch {}", plan.roles(action.role), calls,
                       action.microBatch + round * advance);
  }
  std::string text;
  for (uint32_t i = 0; i < action.flights.count; ++i) {
    const PreparedFlight &flight = program.flights[action.flights.first + i];
    text += fmt::format("{} {}/{}", text.empty() ? "" : ",", plan.transfers(flight.transfer).name(),
                        flight.microBatch + round * advance);
  }
  return (action.kind == PreparedAction::Start ? "START" : "WAIT") + text;
}

Failure Executor::describe(const std::string &message) const {
  const pb::Plan &plan = source.plan();
  Failure failure;
  failure.rank = program.rank;
  failure.stage = program.stage;
  failure.step = step;
  failure.message = message;
  if (position.action >= 0)
    failure.action =
        fmt::format("action {} of {}: {}", position.number, plan.entries(position.entry).name(), actionText());
  if (position.subprogram < 0)
    return failure;
  const pb::Subprogram &subprogram = plan.subprograms(position.subprogram);
  failure.subprogram =
      fmt::format("{} of {}", subprogram.name(), plan.stages(program.stage).calls(position.call).name());
  if (position.instruction >= 0)
    failure.op = locationText(plan, subprogram.instructions(position.instruction).location());
  return failure;
}

} // namespace espalier::rt
