#include "runtime/device/cpu/token_rows.h"

#include <algorithm>

namespace espalier::rt {

namespace {

using Unit = TokenRows::Unit;

/// Returns the unit of the two dimensions of a value from `place` on.
Unit unitAt(const pb::Plan &plan, const pb::Value &value, int place) {
  auto is = [&](int at, const char *name, uint64_t size) {
    if (value.dims_size() <= at)
      return false;
    const pb::Dim &dim = plan.dims(static_cast<int>(value.dims(at)));
    return dim.name() == name && dim.size() == size;
  };
  if (!is(place, "batch", plan.settings().micro_batch_size()))
    return TokenRows::None;
  bool isPrompt = plan.settings().prompt_tokens() > 1 && is(place + 1, "seq", plan.settings().prompt_tokens());
  return isPrompt ? TokenRows::Token : TokenRows::Sequence;
}

const pb::Value &valueOf(const pb::Plan &plan, const pb::Buffer &buffer) {
  return plan.values(static_cast<int>(buffer.value()));
}

/// Returns the unit of a value by its outermost dimensions.
Unit unitOf(const pb::Plan &plan, const pb::Buffer &buffer) { return unitAt(plan, valueOf(plan, buffer), 0); }

/// Returns whether a value has tokens, perhaps inside of other dimensions, such as the choices of experts.
bool hasTokens(const pb::Plan &plan, const pb::Buffer &buffer) {
  const pb::Value &value = valueOf(plan, buffer);
  for (int place = 0; place < value.dims_size(); ++place)
    if (unitAt(plan, value, place) == TokenRows::Token)
      return true;
  return false;
}

bool hasTokens(const pb::Plan &plan, const google::protobuf::RepeatedPtrField<pb::Buffer> &buffers) {
  return std::ranges::any_of(buffers, [&](const pb::Buffer &one) { return hasTokens(plan, one); });
}

int64_t tokensOf(const pb::Plan &plan) {
  return static_cast<int64_t>(plan.settings().micro_batch_size() * plan.settings().prompt_tokens());
}

/// Returns the rows if `extent` is a multiple of the units.
TokenRows divided(const pb::Plan &plan, Unit unit, int64_t extent) {
  int64_t units = unit == TokenRows::Token ? tokensOf(plan) : static_cast<int64_t>(plan.settings().micro_batch_size());
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
  case pb::LibraryCall::ROUTE:
    return divided(plan, unitOf(plan, call.buffers(0)), call.sizes(0) * call.sizes(1));
  default:
    return {};
  }
  return divided(plan, unitOf(plan, call.buffers(2)), call.sizes(0));
}

/// Returns whether a launch computes each token from this token alone. Its sums are over dimensions that its result
/// does not have. Sums over columns that its result has, too, are those of one token if each row belongs to one token.
/// Rows without a token may be computed in vain.
bool keepsTokensApart(const pb::Plan &plan, const pb::Launch &launch) {
  bool mixesColumns = plan.kernels(static_cast<int>(launch.kernel())).whole_columns();
  return hasTokens(plan, *launch.buffers().rbegin()) && (!mixesColumns || launch.extent() % tokensOf(plan) == 0);
}

/// Returns whether the instruction computes the same for a token in any row, or is told its row.
bool canMoveTokens(const pb::Plan &plan, const pb::Instruction &instruction) {
  if (instruction.has_launch())
    return !hasTokens(plan, instruction.launch().buffers()) || keepsTokensApart(plan, instruction.launch());
  if (!instruction.has_call() || !hasTokens(plan, instruction.call().buffers()))
    return true;
  const pb::LibraryCall &call = instruction.call();
  switch (call.function()) {
  case pb::LibraryCall::ATTEND_CACHE:
  case pb::LibraryCall::TAKE_ROW:
  case pb::LibraryCall::RECURRENCE:
  case pb::LibraryCall::CAUSAL_CONV:
  case pb::LibraryCall::COLUMNS:
  case pb::LibraryCall::CONCAT:
  case pb::LibraryCall::DISPATCH:
  case pb::LibraryCall::COMBINE:
  case pb::LibraryCall::REDUCE_PARTS: // no part is one of tokens
    return true;
  case pb::LibraryCall::ROUTE: { // with a slot for each token, the other tokens of a sample do not matter
    int64_t tokens = call.sizes(1), slots = call.sizes(4);
    return slots >= tokens;
  }
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
