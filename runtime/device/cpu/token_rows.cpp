#include "runtime/device/cpu/token_rows.h"

#include <algorithm>

namespace espalier::rt {

namespace {

using Unit = TokenRows::Unit;

/// Returns the unit of a value by its outermost dimensions.
Unit unitOf(const pb::Plan &plan, const pb::Buffer &buffer) {
  const pb::Value &value = plan.values(static_cast<int>(buffer.value()));
  auto is = [&](int place, const char *name, uint64_t size) {
    if (value.dims_size() <= place)
      return false;
    const pb::Dim &dim = plan.dims(static_cast<int>(value.dims(place)));
    return dim.name() == name && dim.size() == size;
  };
  if (!is(0, "batch", plan.settings().micro_batch_size()))
    return TokenRows::None;
  bool isPrompt = plan.settings().prompt_tokens() > 1 && is(1, "seq", plan.settings().prompt_tokens());
  return isPrompt ? TokenRows::Token : TokenRows::Sequence;
}

bool hasTokens(const pb::Plan &plan, const google::protobuf::RepeatedPtrField<pb::Buffer> &buffers) {
  return std::ranges::any_of(buffers, [&](const pb::Buffer &one) { return unitOf(plan, one) == TokenRows::Token; });
}

/// Returns the rows if `extent` is a multiple of the units.
TokenRows divided(const pb::Plan &plan, Unit unit, int64_t extent) {
  auto units = static_cast<int64_t>(plan.settings().micro_batch_size());
  if (unit == TokenRows::Token)
    units *= static_cast<int64_t>(plan.settings().prompt_tokens());
  return unit != TokenRows::None && units > 0 && extent % units == 0 ? TokenRows{unit, extent / units} : TokenRows{};
}

/// The last buffer of a launch is a result.
TokenRows rowsOf(const pb::Plan &plan, const pb::Launch &launch) {
  Unit unit = TokenRows::None;
  for (const pb::Buffer &buffer : launch.buffers())
    if (Unit one = unitOf(plan, buffer); one != TokenRows::None) {
      if (unit != TokenRows::None && one != unit)
        return {};
      unit = one;
    }
  bool isReduction = launch.buffers().empty() || unitOf(plan, *launch.buffers().rbegin()) != unit;
  if (isReduction)
    return {};
  return divided(plan, unit, launch.extent());
}

TokenRows rowsOf(const pb::Plan &plan, const pb::LibraryCall &call) {
  switch (call.function()) {
  case pb::LibraryCall::MATMUL:
    if (call.transpose_a() || call.sizes(3) != 1 || unitOf(plan, call.buffers(0)) != unitOf(plan, call.buffers(2)))
      return {};
    break;
  case pb::LibraryCall::EMBED:
  case pb::LibraryCall::ROPE:
    break;
  default:
    return {};
  }
  return divided(plan, unitOf(plan, call.buffers(2)), call.sizes(0));
}

/// Returns whether the instruction computes the same for a token in any row, or is told its row.
bool canMoveTokens(const pb::Plan &plan, const pb::Instruction &instruction) {
  if (instruction.has_launch())
    return !hasTokens(plan, instruction.launch().buffers()) || tokenRows(plan, instruction).unit == TokenRows::Token;
  if (!instruction.has_call() || !hasTokens(plan, instruction.call().buffers()))
    return true;
  switch (instruction.call().function()) {
  case pb::LibraryCall::ATTEND_CACHE:
  case pb::LibraryCall::TAKE_ROW:
  case pb::LibraryCall::COLUMNS:
  case pb::LibraryCall::CONCAT:
    return true;
  default:
    return tokenRows(plan, instruction).unit == TokenRows::Token;
  }
}

} // namespace

TokenRows tokenRows(const pb::Plan &plan, const pb::Instruction &instruction) {
  if (plan.settings().prompt_tokens() == 0)
    return {};
  return instruction.has_launch() ? rowsOf(plan, instruction.launch())
         : instruction.has_call() ? rowsOf(plan, instruction.call())
                                  : TokenRows{};
}

bool canPackTokens(const pb::Plan &plan) {
  return plan.settings().prompt_tokens() > 1 &&
         std::ranges::all_of(plan.subprograms(), [&](const pb::Subprogram &subprogram) {
           return std::ranges::all_of(subprogram.instructions(), [&](const pb::Instruction &instruction) {
             return canMoveTokens(plan, instruction);
           });
         });
}

} // namespace espalier::rt
