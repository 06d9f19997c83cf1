#include "runtime/verify/library_functions.h"

#include <algorithm>

namespace espalier::rt {
namespace {

using Access = OperandSignature::Access;

// The numbers of plan.proto are those of functions.def.
#define FUNCTION(number, name, signature) static_assert(pb::LibraryCall::name == number);
#define EPILOGUE(number, name, signature) static_assert(pb::LibraryCall::name == number);
#include "runtime/functions.def"

pb::Operand::Access accessOf(Access access, pb::Store store) {
  switch (access) {
  case Access::Read:
    return pb::Operand::READ;
  case Access::Write:
    return pb::Operand::WRITE;
  case Access::Update:
    return pb::Operand::UPDATE;
  case Access::Add:
    return pb::Operand::ADD;
  case Access::Store:
    break;
  }
  return store == pb::OVERWRITE ? pb::Operand::WRITE : pb::Operand::ADD;
}

/// The operand of this name as a bit; 0 for no name.
uint32_t bitOf(const std::vector<const OperandSignature *> &operands, const std::string &name) {
  auto found = std::ranges::find(operands, name, &OperandSignature::name);
  return found == operands.end() ? 0 : uint32_t{1} << (found - operands.begin());
}

} // namespace

CallRows::CallRows(const pb::LibraryCall &call) : function(findFunction(call.function())) {
  if (!function)
    return;
  sizes = allSizes(*function, std::span(call.sizes().data(), static_cast<size_t>(call.sizes_size())));
  if (function->hasFlag("epilogue"))
    epilogue = findEpilogue(call.epilogue());
}

std::optional<std::vector<OperandRule>> operandsOf(const pb::LibraryCall &call) {
  CallRows rows(call);
  if (!rows.sizes)
    return std::nullopt;
  std::vector<OperandRule> rules;
  std::vector<const OperandSignature *> operands = rows.operands(call.buffers_size());
  uint32_t factors = 0;
  for (const OperandSignature *operand : operands) {
    std::optional<int64_t> elements = elementsOf(*operand, *rows.function, *rows.sizes);
    if (!elements)
      return std::nullopt;
    OperandRule &rule = rules.emplace_back();
    rule.row = operand;
    rule.access = accessOf(operand->access, call.store());
    rule.elements = *elements;
    rule.unlessFirst = operand->isStored() && call.store() == pb::ADD_UNLESS_FIRST;
    rule.over = bitOf(operands, operand->over);
    // What is added to terms is terms; a bias would be added once by each rank with a term.
    bool isLinear = operand->isLinear && (!rows.epilogue || rows.epilogue->isLinear);
    rule.linear = isLinear && operand->isRead() ? ++factors : 0;
    rule.reduces = operand->isSum;
    rule.madeOf = bitOf(operands, operand->of);
  }
  return rules;
}

} // namespace espalier::rt
