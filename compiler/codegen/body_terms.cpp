#include "compiler/codegen/body_terms.h"

#include "dialects/interfaces.h"
#include "dialects/model/dialect.h"

#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

/// Returns the operands that an op sums. For an accumulation this is only the term, because the accumulator is updated
/// in place.
OperandRange termsOf(Operation *op) {
  return isa<model::AccumulateOp>(op) ? op->getOperands().drop_front() : op->getOperands();
}

bool isSum(Operation *op) {
  auto shardable = dyn_cast_or_null<ShardableOp>(op);
  return shardable && shardable.passesPartial();
}

bool reduces(Operation *op) { return isa<model::ReduceSumOp, model::ReduceMaxOp, model::PickOp>(op); }

/// Returns whether a value is computed from arguments by sums alone.
bool isSumOfArguments(Value value) {
  Operation *op = value.getDefiningOp();
  return !op || (isSum(op) && llvm::all_of(termsOf(op), isSumOfArguments));
}

/// Returns whether a value affects only results, through sums of arguments.
bool isOnlyAdded(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return isa<exec::YieldOp>(user) ||
           (isSum(user) && isSumOfArguments(user->getResult(0)) && isOnlyAdded(user->getResult(0)));
  });
}

bool isNumber(Value value) { return isa_and_nonnull<model::ConstantOp, model::ScalarOp>(value.getDefiningOp()); }

/// Returns whether a value is a sum or maximum over dimensions that it no longer has. Sums of reductions, conversions
/// of a reduction and products with a number also count.
bool isReduction(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || reduces(op))
    return op;
  if (isa<model::MulOp>(op))
    return (isReduction(op->getOperand(0)) && isNumber(op->getOperand(1))) ||
           (isNumber(op->getOperand(0)) && isReduction(op->getOperand(1)));
  return isa<model::AddOp, model::AccumulateOp, model::ConvertOp>(op) && llvm::all_of(termsOf(op), isReduction);
}

/// Returns whether a reduction is only used as a reduction: its users are results or reductions themselves.
bool isHandedOut(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return isa<exec::YieldOp>(user) || (isReduction(user->getResult(0)) && isHandedOut(user->getResult(0)));
  });
}

} // namespace

BodyTerms::BodyTerms(const KernelShape &shape) {
  auto stored = shape.body->getTerminator()->getOperands();
  llvm::EquivalenceClasses<void *> sums;
  auto isTerm = [](Value value) { return isSumOfArguments(value) && isOnlyAdded(value); };
  for (Operation &op : shape.body->without_terminator()) {
    if (reduces(&op) && !reducesLeading(&op) && !isHandedOut(op.getResult(0)))
      needsWholeColumns = true;
    for (Value term : termsOf(&op))
      if (isSum(&op) && isTerm(op.getResult(0)))
        sums.unionSets(term.getAsOpaquePointer(), op.getResult(0).getAsOpaquePointer());
  }
  llvm::SmallVector<void *> known;
  auto numberOf = [&](Value value) -> unsigned {
    if (!isTerm(value))
      return 0;
    void *leader = sums.getOrInsertLeaderValue(value.getAsOpaquePointer());
    auto *found = llvm::find(known, leader);
    if (found == known.end()) {
      known.push_back(leader);
      return known.size();
    }
    return found - known.begin() + 1;
  };
  for (auto [index, argument] : llvm::enumerate(shape.body->getArguments()))
    arguments.push_back(shape.isAccumulator(index) ? 0 : numberOf(argument));
  for (Value value : stored) {
    results.push_back(numberOf(value));
    isReduced.push_back(isReduction(value));
  }
}

} // namespace espalier::codegen
