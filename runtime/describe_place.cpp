#include "runtime/describe_place.h"

#include "runtime/prepare.h"

#include <fmt/format.h>
#include <optional>

namespace espalier::rt {
namespace {

/// An action of an instruction stream, in one round of its block.
struct PlacedAction {
  const pb::Action &action;
  uint32_t microBatches; ///< added to the action's micro-batch in this round
};

/// Returns the action with a number, or nothing if the stream has fewer actions.
std::optional<PlacedAction> actionOf(const pb::Actions &list, int64_t number) {
  for (const pb::Block &block : list.blocks()) {
    int64_t rounds = std::max(1u, block.rounds()), all = rounds * block.actions_size();
    if (number < all)
      return PlacedAction{block.actions(static_cast<int>(number % block.actions_size())),
                          static_cast<uint32_t>(number / block.actions_size()) * block.advance()};
    number -= all;
  }
  return std::nullopt;
}

/// Formats "RUN backward of block.2 .. block.0, micro-batch 1".
std::string textOf(const pb::Plan &plan, const pb::Stage &stage, const pb::Run &run, uint32_t microBatches) {
  int first = static_cast<int>(run.first_call()), last = first + static_cast<int>(run.calls()) - 1;
  if (run.backwards())
    std::swap(first, last);
  std::string calls = stage.calls(first).name();
  if (first != last)
    calls += " .. " + stage.calls(last).name();
  return fmt::format("RUN {} of {}, micro-batch {}", plan.roles(static_cast<int>(run.role())), calls,
                     run.micro_batch() + microBatches);
}

/// Formats "WAIT in/0, out/3": each in-flight transfer with its micro-batch.
std::string textOf(const pb::Plan &plan, const char *kind, const auto &flights, uint32_t microBatches) {
  std::string text = kind;
  for (const pb::Flight &flight : flights)
    text +=
        fmt::format("{}{}/{}", &flight == &flights[0] ? " " : ", ",
                    plan.transfers(static_cast<int>(flight.transfer())).name(), flight.micro_batch() + microBatches);
  return text;
}

std::string textOf(const pb::Plan &plan, const pb::Stage &stage, const PlacedAction &placed) {
  if (placed.action.has_run())
    return textOf(plan, stage, placed.action.run(), placed.microBatches);
  if (placed.action.has_start())
    return textOf(plan, "START", placed.action.start().flights(), placed.microBatches);
  return textOf(plan, "WAIT", placed.action.wait().flights(), placed.microBatches);
}

/// Rejects inconsistent indices: the rank may be writing its status while another thread reads it.
bool isIndex(int64_t number, int count) { return number >= 0 && number < count; }

} // namespace

void describePlace(const pb::Plan &plan, int stageNumber, const RankStatus &status, Failure &failure) {
  const pb::Stage &stage = plan.stages(stageNumber);
  int entry = status.entry, call = status.call, subprogram = status.subprogram, instruction = status.instruction;
  int64_t number = status.number;
  failure.stage = stageNumber;
  failure.step = status.step;
  if (!isIndex(entry, stage.entries_size()) || number < 0)
    return;
  if (std::optional<PlacedAction> action = actionOf(stage.entries(entry), number))
    failure.action =
        fmt::format("action {} of {}: {}", number, plan.entries(entry).name(), textOf(plan, stage, *action));
  if (!isIndex(subprogram, plan.subprograms_size()) || !isIndex(call, stage.calls_size()))
    return;
  const pb::Subprogram &running = plan.subprograms(subprogram);
  failure.subprogram = fmt::format("{} of {}", running.name(), stage.calls(call).name());
  if (isIndex(instruction, running.instructions_size()))
    failure.op = locationText(plan, running.instructions(instruction).location());
}

void describeStalled(const Program &program, const RankStatus &status, StalledRank &rank) {
  const pb::Plan &plan = program.plan();
  const Mesh &mesh = program.mesh();
  describePlace(plan, mesh.stage(rank.rank), status, rank.place);
  int transfer = status.transfer;
  if (isIndex(transfer, plan.transfers_size()))
    rank.awaited = {membersOf(plan, mesh, rank.rank, plan.transfers(transfer)), waitedFor(plan, status)};
  else
    rank.awaited = {mesh.members(0, allAxes),
                    status.main.wait == Activity::OwnDevice ? "the work of its device" : "a message of all ranks"};
}

std::string waitedFor(const pb::Plan &plan, const RankStatus &status) {
  int transfer = status.transfer;
  if (!isIndex(transfer, plan.transfers_size()))
    return "";
  return fmt::format("{}/{}", plan.transfers(transfer).name(), uint32_t{status.microBatch});
}

} // namespace espalier::rt
