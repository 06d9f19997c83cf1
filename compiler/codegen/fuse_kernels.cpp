// Grows groups of ops that become one kernel each. Row groups grow first, along producers and consumers. Sums over rows
// then become column groups, which recompute their operands if that reads little, or join a row group. Numbers and
// small operands are cloned into every group that uses them, so that they never need their own kernel.
#include "compiler/codegen/kernel_nodes.h"
#include "compiler/codegen/kernel_shape.h"
#include "compiler/passes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_FUSEKERNELS
#include "compiler/passes.h.inc"

using namespace codegen;

namespace {

int64_t elements(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

bool isSunkInto(Operation *op, Operation *user) {
  return isFusable(user) && (isNumberOp(op) || iterationSpace(op).getRank() < iterationSpace(user).getRank() ||
                             iterationSpace(op).getRank() == 0);
}

/// Gives each user of a sinkable op its own clone.
void sinkSmallOps(func::FuncOp function) {
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    if (!isSinkable(op))
      continue;
    llvm::SetVector<Operation *> users(op->user_begin(), op->user_end());
    for (Operation *user : users) {
      // A sum over rows reads its operand through a clone of the ops that compute it.
      if (!isSunkInto(op, user) || llvm::all_of(op->getUsers(), [&](Operation *other) { return other == user; }))
        continue;
      OpBuilder builder(user);
      Operation *clone = builder.clone(*op);
      user->replaceUsesOfWith(op->getResult(0), clone->getResult(0));
    }
    if (op->use_empty())
      op->erase();
  }
}

/// Replaces the shape operand of pick_grad by a number, because only its type is read. Otherwise the operand would have
/// to be saved.
void dropShapeOperands(func::FuncOp function) {
  for (auto grad : function.getOps<model::PickGradOp>()) {
    OpBuilder builder(grad);
    Value zero = builder.create<model::ConstantOp>(grad.getLoc(), namedTensor({}, {}, builder.getF32Type()),
                                                   builder.getF64FloatAttr(0));
    grad->setOperand(2, builder.create<model::BroadcastOp>(grad.getLoc(), grad.getLike().getType(), zero));
  }
}

/// Makes sums over rows f32, because the runtime adds them in f32. Another result type becomes a conversion.
void widenColumnSums(func::FuncOp function) {
  for (auto sum : llvm::make_early_inc_range(function.getOps<model::ReduceSumOp>())) {
    auto type = cast<RankedTensorType>(sum.getType());
    if (!reducesLeading(sum) || type.getElementType().isF32())
      continue;
    OpBuilder builder(sum);
    Value wide = builder.create<model::ReduceSumOp>(sum.getLoc(), withElement(type, builder.getF32Type()), sum.getX());
    sum.replaceAllUsesWith(builder.create<model::ConvertOp>(sum.getLoc(), type, wide).getResult());
    sum.erase();
  }
}

/// Returns a sum over dimensions between those that are kept, as a product with ones: one matrix [summed, last kept]
/// per element of the first ones. Returns null if the summed dimensions are not neighbours.
Value sumBetween(Operation &sum) {
  Value x = sum.getOperand(0);
  auto type = cast<RankedTensorType>(x.getType());
  ArrayRef<StringAttr> all = dimNames(type), kept = dimNames(sum.getResult(0).getType());
  size_t first = 0, last = 0; // dimensions kept before and after those that are summed
  while (first < kept.size() && kept[first] == all[first])
    ++first;
  while (first + last < kept.size() && kept[kept.size() - 1 - last] == all[all.size() - 1 - last])
    ++last;
  if (first + last < kept.size() || first == 0 || last == 0)
    return {};
  OpBuilder builder(&sum);
  Value one = builder.create<model::ConstantOp>(sum.getLoc(), namedTensor({}, {}, builder.getF32Type()),
                                                builder.getF64FloatAttr(1));
  auto onesType = namedTensor(type.getShape().drop_back(last), all.drop_back(last), type.getElementType());
  Value ones = builder.create<model::BroadcastOp>(sum.getLoc(), onesType, one);
  return builder.create<model::ContractOp>(sum.getLoc(), sum.getResult(0).getType(), ones, x);
}

/// Splits a sum that keeps dimensions in the middle into a sum over the trailing dimensions and a sum over the leading
/// ones. Replaces a sum over dimensions in the middle.
LogicalResult splitReductions(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    if (!isa<model::ReduceSumOp, model::ReduceMaxOp>(op) || reducesTrailing(&op) || reducesLeading(&op))
      continue;
    auto type = cast<RankedTensorType>(op.getOperand(0).getType());
    ArrayRef<StringAttr> all = dimNames(type), kept = dimNames(op.getResult(0).getType());
    size_t end = llvm::find(all, kept.back()) - all.begin() + 1;
    if (Value product = isa<model::ReduceSumOp>(op) ? sumBetween(op) : Value()) {
      op.getResult(0).replaceAllUsesWith(product);
      op.erase();
      continue;
    }
    if (isa<model::ReduceMaxOp>(op) || end < kept.size() || all.slice(end - kept.size(), kept.size()) != kept)
      return op.emitOpError("keeps dimensions that are not neighbours, got ")
             << op.getResult(0).getType() << " from " << type << "; reduce them one after the other";
    OpBuilder builder(&op);
    auto middle = namedTensor(type.getShape().take_front(end), all.take_front(end), builder.getF32Type());
    op.setOperand(0, builder.create<model::ReduceSumOp>(op.getLoc(), middle, op.getOperand(0)));
  }
  return success();
}

/// Grows row groups. Each op joins its producers, then groups that read the same large tensor join each other.
void growGroups(FusionGraph &graph) {
  for (Operation *op : graph.ops())
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        (void)graph.tryMerge(producer, op);
  for (Operation *op : graph.ops()) {
    if (!isFusable(op))
      continue;
    for (Value operand : op->getOperands()) {
      if (elements(operand) != iterationSpace(op).getNumElements())
        continue;
      SmallVector<Operation *> users(operand.getUsers());
      llvm::sort(users, [&](Operation *a, Operation *b) { return graph.position(a) < graph.position(b); });
      for (Operation *user : users)
        if (isFusable(user) && iterationSpace(user).getShape() == iterationSpace(op).getShape())
          (void)graph.tryMerge(op, user);
    }
  }
}

LogicalResult createFused(const KernelNode &node, OpBuilder &builder, IRMapping &mapping) {
  std::optional<Candidate> candidate = buildCandidate(node.members, node.outputs);
  if (!candidate)
    return node.members.back()->emitOpError("has no kernel: its operands are neither rows nor columns");
  SmallVector<Location> locations;
  for (Operation *op : node.members)
    if (!isNumberOp(op) && !llvm::is_contained(locations, op->getLoc()))
      locations.push_back(op->getLoc());
  Location loc = locations.size() == 1 ? locations.front() : FusedLoc::get(builder.getContext(), locations);
  SmallVector<Value> inputs;
  for (Value input : candidate->inputs)
    inputs.push_back(mapping.lookupOrDefault(input));
  SmallVector<Type> types;
  for (Value output : node.outputs)
    types.push_back(output.getType());
  auto fused = builder.create<exec::FusedOp>(loc, types, inputs, candidate->kind, candidate->split);
  fused.getBody().takeBody(*candidate->region);
  for (auto [output, result] : llvm::zip_equal(node.outputs, fused.getResults()))
    mapping.map(output, result);
  return success();
}

LogicalResult fuseFunction(func::FuncOp function) {
  if (failed(splitReductions(function)))
    return failure();
  widenColumnSums(function);
  dropShapeOperands(function);
  sinkSmallOps(function);
  FusionGraph graph(function);
  growGroups(graph);
  std::vector<KernelNode> nodes = buildNodes(graph);
  Block &block = function.getBody().front();
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  IRMapping mapping;
  for (unsigned index : orderNodes(nodes)) {
    if (nodes[index].isKernel) {
      if (failed(createFused(nodes[index], builder, mapping)))
        return failure();
      continue;
    }
    builder.clone(*nodes[index].members.front(), mapping);
  }
  for (Operation *op : llvm::reverse(graph.ops())) {
    op->dropAllUses();
    op->erase();
  }
  return success();
}

struct FuseKernelsPass : impl::FuseKernelsBase<FuseKernelsPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration() && failed(fuseFunction(function)))
        return signalPassFailure();
  }
};

} // namespace
} // namespace espalier
