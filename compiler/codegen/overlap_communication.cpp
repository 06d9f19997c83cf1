// Moves work between the start of a collective and its wait, so that the work hides the collective. lower-to-exec
// places the wait before the first instruction that needs the result. This pass does not change any value. A collective
// starts as soon as its operand exists. Weight gradients, which nothing in the program waits for, are computed after
// the next collective has started. All members of a group run the same program, so they agree on the order of
// collectives.
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

/// Returns the first op that waits for a collective's result.
Operation *firstUser(Operation *collective) {
  Operation *first = nullptr;
  for (Operation *user : collective->getUsers())
    if (!first || user->isBeforeInBlock(first))
      first = user;
  return first;
}

/// Moves each collective up to its operand's producer. A collective does not move past another one, unless the other
/// result is needed later. Collectives then start in the order of their waits, as needed by a device that runs one
/// transfer at a time.
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

/// Returns whether the op is a product or a sum over rows whose results are only added to accumulators of the function.
bool isWeightGradient(Operation &op) {
  return isa<model::ContractOp, exec::ProductOp, exec::FusedOp>(op) && llvm::all_of(op.getUsers(), [](Operation *user) {
           auto accumulate = dyn_cast<model::AccumulateOp>(user);
           return accumulate && isa<BlockArgument>(accumulate.getAccumulator());
         });
}

/// Moves weight gradients that do not hide a collective to after the start of the next collective.
void sinkWeightGradients(Block &block) {
  SmallVector<Operation *> idle; // in order, since the last collective's result was needed
  Operation *awaited = nullptr;  // first user of the in-flight collective
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
