// Between the start of a collective and its wait other work hides it. The wait stands before the first instruction that
// needs the result (lower-to-exec); this pass brings work in between, without a change to any value: a collective
// starts as soon as its operand exists, and gradients of weights, which nothing in the program waits for, are computed
// after the next collective has started. All members of a group run the same program, so that they agree on the order
// of collectives.
#include "compiler/passes.h"
#include "dialects/dist/dialect.h"
#include "dialects/exec/dialect.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_OVERLAPCOMMUNICATION
#include "compiler/passes.h.inc"

namespace {

bool isCollective(Operation *op) { return isa<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp>(op); }

/// The first op that waits for a collective's result.
Operation *firstUser(Operation *collective) {
  Operation *first = nullptr;
  for (Operation *user : collective->getUsers())
    if (!first || user->isBeforeInBlock(first))
      first = user;
  return first;
}

/// Moves each collective up to its operand's producer, but not past another one, except where that is needed later:
/// collectives start in the order in which they are waited for, which a device that moves one after the other needs.
void hoistCollectives(Block &block) {
  Operation *previous = nullptr;
  auto isNeededBefore = [](Operation *a, Operation *b) {
    Operation *userA = firstUser(a), *userB = firstUser(b);
    return userA && userB && userA->isBeforeInBlock(userB);
  };
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (!isCollective(&op))
      continue;
    Operation *after = op.getOperand(0).getDefiningOp();
    if (previous && (!after || after->isBeforeInBlock(previous)) && isNeededBefore(&op, previous)) {
      op.moveBefore(previous);
      continue;
    }
    if (previous && (!after || after->isBeforeInBlock(previous)))
      after = previous;
    if (after)
      op.moveAfter(after);
    else
      op.moveBefore(&block.front());
    previous = &op;
  }
}

/// Products and sums over rows that are only added to accumulators of the function.
bool isWeightGradient(Operation &op) {
  return isa<model::ContractOp, exec::ProductOp, exec::FusedOp>(op) && llvm::all_of(op.getUsers(), [](Operation *user) {
           auto accumulate = dyn_cast<model::AccumulateOp>(user);
           return accumulate && isa<BlockArgument>(accumulate.getAccumulator());
         });
}

/// Moves weight gradients that hide nothing where they stand behind the next collective.
void sinkWeightGradients(Block &block) {
  SmallVector<Operation *> idle; // in order, since the last collective's result was needed
  Operation *awaited = nullptr;  // first user of the collective in flight
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (&op == awaited)
      awaited = nullptr;
    if (isCollective(&op)) {
      Operation *last = &op;
      for (Operation *gradient : idle) {
        gradient->moveAfter(last);
        last = gradient;
        for (Operation *accumulate : gradient->getUsers()) {
          accumulate->moveAfter(last);
          last = accumulate;
        }
      }
      idle.clear();
      awaited = firstUser(&op);
    } else if (!awaited && isWeightGradient(op)) {
      idle.push_back(&op);
    }
  }
}

struct OverlapCommunicationPass : impl::OverlapCommunicationBase<OverlapCommunicationPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isDeclaration())
        continue;
      hoistCollectives(function.getBody().front());
      sinkWeightGradients(function.getBody().front());
    }
  }
};

} // namespace
} // namespace espalier
