#include "compiler/codegen/body_terms.h"

#include "dialects/interfaces.h"
#include "dialects/model/dialect.h"

#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

/// What an op adds up: of an accumulation the term, which its place takes in.
OperandRange termsOf(Operation *op) {
  return isa<model::AccumulateOp>(op) ? op->getOperands().drop_front() : op->getOperands();
}

bool isSum(Operation *op) {
  auto shardable = dyn_cast_or_null<ShardableOp>(op);
  return shardable && shardable.passesPartial();
}

bool reduces(Operation *op) { return isa<model::ReduceSumOp, model::ReduceMaxOp, model::PickOp>(op); }

/// Whether a value is made of arguments by sums alone.
bool isSumOfArguments(Value value) {
  Operation *op = value.getDefiningOp();
  return !op || (isSum(op) && llvm::all_of(termsOf(op), isSumOfArguments));
}

/// Whether a value goes into results alone, by way of sums of arguments.
bool isOnlyAdded(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return isa<exec::YieldOp>(user) ||
           (isSum(user) && isSumOfArguments(user->getResult(0)) && isOnlyAdded(user->getResult(0)));
  });
}

bool isNumber(Value value) { return isa_and_nonnull<model::ConstantOp, model::ScalarOp>(value.getDefiningOp()); }

/// Whether a value is a sum or maximum over what it has not, and nothing more. A sum of sums is one, and so is one in
/// another type, or times a number.
bool isReduction(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || reduces(op))
    return op;
  if (isa<model::MulOp>(op))
    return (isReduction(op->getOperand(0)) && isNumber(op->getOperand(1))) ||
           (isNumber(op->getOperand(0)) && isReduction(op->getOperand(1)));
  return isa<model::AddOp, model::AccumulateOp, model::ConvertOp>(op) && llvm::all_of(termsOf(op), isReduction);
}

/// Whether a reduction is handed out as one: what reads it is a result, or a reduction itself.
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
