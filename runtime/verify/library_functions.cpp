#include "runtime/verify/library_functions.h"

#include "format/plan_access.h"

#include <algorithm>

namespace espalier::rt {
namespace {

/// Returns the bit of the operand with this name, or 0 for an unknown name.
uint32_t bitOf(const std::vector<const OperandSignature *> &operands, const std::string &name) {
  auto found = std::ranges::find(operands, name, &OperandSignature::name);
  return found == operands.end() ? 0 : uint32_t{1} << (found - operands.begin());
}

} // namespace

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
    rule.access = planAccess(operand->access, call.store() == pb::OVERWRITE);
    rule.elements = *elements;
    rule.unlessFirst = operand->isStored() && call.store() == pb::ADD_UNLESS_FIRST;
    rule.over = bitOf(operands, operand->over);
    // An epilogue that is not linear, such as a bias, must not see partial sums: each rank would add the bias once.
    bool isLinear = operand->isLinear && (!rows.epilogue || rows.epilogue->isLinear);
    rule.linear = isLinear && operand->isRead() ? ++factors : 0;
    rule.reduces = operand->isSum;
    rule.madeOf = bitOf(operands, operand->of);
  }
  return rules;
}

} // namespace espalier::rt
