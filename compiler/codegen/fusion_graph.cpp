// Decides whether a fusion is legal. Legality is tested and not predicted: the group's body is built and passed to the
// same analysis that code generation uses.
#include "compiler/codegen/fusion_graph.h"

#include "compiler/codegen/kernel_shape.h"
#include "dialects/model/dialect.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace espalier::codegen {

/// Returns whether a product can store its f32 sums as `element`. CUDA's library has products of 16-bit operands with
/// 16-bit results, but none of f32 operands.
static bool storesAs(Operation *product, Type element) {
  return element.isF32() || llvm::all_of(product->getOperandTypes(), [&](Type operand) {
           return cast<RankedTensorType>(operand).getElementType() == element;
         });
}

bool isAccumulatedByProducer(Operation *op) {
  auto accumulate = dyn_cast<model::AccumulateOp>(op);
  if (!accumulate || !accumulate.getX().hasOneUse())
    return false;
  Operation *producer = accumulate.getX().getDefiningOp();
  if (!producer)
    return false;
  if (isa<model::SquaredNormOp>(producer))
    return accumulate.getAlways();
  if (auto product = dyn_cast<exec::ProductOp>(producer))
    return product.getEpilogue() == "bias_gradient";
  if (isa<model::ContractOp>(producer))
    return storesAs(producer, cast<RankedTensorType>(accumulate.getType()).getElementType());
  return isa<model::EmbedGradOp, model::CausalConvGradOp>(producer) || reducesLeading(producer);
}

bool isNumberOp(Operation *op) { return isa<model::ConstantOp, model::ScalarOp>(op); }

bool isSinkable(Operation *op) {
  if (isNumberOp(op))
    return true;
  if (!isa<ElementwiseOp>(op))
    return false;
  bool isNumber = iterationSpace(op).getRank() == 0;
  bool isCheap = isa<model::ConvertOp, model::BroadcastOp, model::NegOp, model::AddOp, model::SubOp, model::MulOp>(op);
  return (isNumber || isCheap) && llvm::all_of(op->getOperands(), [&](Value operand) {
           Operation *producer = operand.getDefiningOp();
           return producer ? isSinkable(producer) : !isNumber;
         });
}

bool isFusable(Operation *op) {
  if (isa<model::AccumulateOp>(op))
    return !isAccumulatedByProducer(op);
  return isa<ElementwiseOp>(op) || reducesTrailing(op) ||
         isa<model::ConstantOp, model::ScalarOp, model::MaskTailOp, model::PickOp, model::PickGradOp, model::DropoutOp>(
             op);
}

/// Clones the members into a new region.
static Candidate cloneMembers(ArrayRef<Operation *> members, ArrayRef<Value> outputs) {
  Candidate candidate;
  llvm::SmallPtrSet<Operation *, 16> inside(members.begin(), members.end());
  for (Operation *op : members)
    for (Value operand : op->getOperands())
      if (!operand.getDefiningOp() || !inside.contains(operand.getDefiningOp()))
        candidate.inputs.insert(operand);
  candidate.outputs.assign(outputs.begin(), outputs.end());
  candidate.region = std::make_unique<Region>();
  Block &block = candidate.region->emplaceBlock();
  IRMapping mapping;
  for (Value input : candidate.inputs)
    mapping.map(input, block.addArgument(input.getType(), input.getLoc()));
  OpBuilder builder(members.back()->getContext());
  builder.setInsertionPointToEnd(&block);
  for (Operation *op : members)
    builder.clone(*op, mapping);
  SmallVector<Value> yielded;
  for (Value output : outputs)
    yielded.push_back(mapping.lookup(output));
  builder.create<exec::YieldOp>(members.back()->getLoc(), yielded);
  return candidate;
}

/// Returns the kinds and splits to try for an iteration space: those that reductions and column ops require, else all,
/// with the most columns first.
static SmallVector<std::pair<std::string, int64_t>> splitsFor(ArrayRef<Operation *> members) {
  int64_t rank = 0;
  for (Operation *op : members)
    rank = std::max(rank, iterationSpace(op).getRank());
  auto kept = [](Operation *op) { return cast<RankedTensorType>(op->getResult(0).getType()).getRank(); };
  if (auto sum = llvm::find_if(members, reducesLeading); sum != members.end())
    return {{"column", rank - kept(*sum)}};
  if (auto reduction = llvm::find_if(members, reducesTrailing); reduction != members.end())
    return {{"row", kept(*reduction)}};
  for (Operation *op : members)
    if (isa<model::PickOp, model::PickGradOp, model::MaskTailOp>(op))
      return {{"row", rank - 1}};
  SmallVector<std::pair<std::string, int64_t>> splits = {{"flat", 0}};
  for (int64_t split = 1; split <= rank; ++split)
    splits.push_back({"row", split});
  splits.push_back({"row", 0});
  return splits;
}

std::optional<Candidate> buildCandidate(ArrayRef<Operation *> members, ArrayRef<Value> outputs) {
  Candidate candidate = cloneMembers(members, outputs);
  for (auto &[kind, split] : splitsFor(members))
    if (succeeded(analyzeKernel(candidate.region->front(), kind, split))) {
      candidate.kind = kind;
      candidate.split = split;
      return candidate;
    }
  return std::nullopt;
}

FusionGraph::FusionGraph(func::FuncOp function) {
  for (Operation &op : function.getBody().front()) {
    positions[&op] = order.size();
    groups[&op] = order.size();
    order.push_back(&op);
    lists.push_back({&op});
  }
}

bool FusionGraph::reachesOutside(int from, int to) const {
  SmallVector<int> pending = {from};
  llvm::SmallDenseSet<int> seen = {from};
  while (!pending.empty()) {
    int group = pending.pop_back_val();
    for (Operation *op : lists[group])
      for (Operation *user : op->getUsers()) {
        int next = groups.lookup(user);
        if (next == to && group != from)
          return true;
        if (next != to && seen.insert(next).second)
          pending.push_back(next);
      }
  }
  return false;
}

bool FusionGraph::tryMerge(Operation *a, Operation *b) {
  int first = groupOf(a), second = groupOf(b);
  if (first == second)
    return true;
  if (!isFusable(a) || !isFusable(b) || reachesOutside(first, second) || reachesOutside(second, first))
    return false;
  SmallVector<Operation *> merged = lists[first];
  llvm::append_range(merged, lists[second]);
  llvm::sort(merged, [&](Operation *x, Operation *y) { return position(x) < position(y); });
  llvm::SmallPtrSet<Operation *, 16> inside(merged.begin(), merged.end());
  SmallVector<Value> outputs;
  for (Operation *op : merged)
    if (llvm::any_of(op->getUsers(), [&](Operation *user) { return !inside.contains(user); }))
      outputs.push_back(op->getResult(0));
  if (!buildCandidate(merged, outputs))
    return false;
  for (Operation *op : lists[second])
    groups[op] = first;
  lists[first] = std::move(merged);
  lists[second].clear();
  return true;
}

} // namespace espalier::codegen
