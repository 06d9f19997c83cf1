// Grows groups of ops that become one kernel each. Row groups first, along producer and consumer; then sums over rows
// become column groups that compute their operands again where that reads little. Numbers and small operands are
// cloned into every group that uses them, so that they never force a kernel of their own.
#include "compiler/codegen/fusion_graph.h"
#include "compiler/codegen/kernel_shape.h"
#include "compiler/passes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <set>

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_FUSEKERNELS
#include "compiler/passes.h.inc"

using namespace codegen;

namespace {

/// Tensors of full size that a column kernel may read for one sum before the sum's operand is rather stored once.
constexpr int maximalLeaves = 3;

int64_t elements(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

bool isNumberOp(Operation *op) { return isa<model::ConstantOp, model::ScalarOp>(op); }

/// Ops so cheap that each user computes them again: numbers, arithmetic on numbers, and conversions and sums of small
/// arguments that the user broadcasts.
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
      // A sum over rows reads its operand through a clone of its own cone.
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

/// The shape operand of pick_grad is not read: a number takes its place, so that nothing is kept for it.
void dropShapeOperands(func::FuncOp function) {
  for (auto grad : function.getOps<model::PickGradOp>()) {
    OpBuilder builder(grad);
    Value zero = builder.create<model::ConstantOp>(grad.getLoc(), namedTensor({}, {}, builder.getF32Type()),
                                                   builder.getF64FloatAttr(0));
    grad->setOperand(2, builder.create<model::BroadcastOp>(grad.getLoc(), grad.getLike().getType(), zero));
  }
}

/// Sums over rows are added in f32 by the runtime: another type is a conversion of their result.
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

/// A sum that keeps dimensions in the middle becomes two: over the trailing ones, then over the leading ones.
LogicalResult splitReductions(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    if (!isa<model::ReduceSumOp, model::ReduceMaxOp>(op) || reducesTrailing(&op) || reducesLeading(&op))
      continue;
    auto type = cast<RankedTensorType>(op.getOperand(0).getType());
    ArrayRef<StringAttr> all = dimNames(type), kept = dimNames(op.getResult(0).getType());
    size_t end = llvm::find(all, kept.back()) - all.begin() + 1;
    if (isa<model::ReduceMaxOp>(op) || end < kept.size() || all.slice(end - kept.size(), kept.size()) != kept)
      return op.emitOpError("keeps dimensions that are not neighbours, got ")
             << op.getResult(0).getType() << " from " << type << "; reduce them one after the other";
    OpBuilder builder(&op);
    auto middle = namedTensor(type.getShape().take_front(end), all.take_front(end), builder.getF32Type());
    op.setOperand(0, builder.create<model::ReduceSumOp>(op.getLoc(), middle, op.getOperand(0)));
  }
  return success();
}

/// Grows row groups: each op joins its producers, then groups that read the same large tensor join each other.
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

/// One kernel to be: a row group, or sums over rows with clones of what they read.
struct Node {
  SmallVector<Operation *> members;
  SmallVector<Value> outputs;
  bool isKernel = false;
};

/// Splits the function into nodes.
class NodeBuilder {
public:
  explicit NodeBuilder(const FusionGraph &graph) : graph(graph) {}

  std::vector<Node> build() {
    for (Operation *op : graph.ops())
      if (reducesLeading(op))
        addColumnSum(op);
      else if (!isFusable(op))
        addPlain(op);
    markLive();
    for (Operation *op : graph.ops())
      if (isFusable(op) && graph.members(graph.groupOf(op)).front() == op)
        addRowGroup(graph.groupOf(op));
    return std::move(nodes);
  }

private:
  void addPlain(Operation *op) {
    Node node;
    node.members = {op};
    nodes.push_back(std::move(node));
  }

  /// Whether the value is in memory whatever column sums do: something else than a sum over rows, outside its group,
  /// reads it.
  bool isMaterialized(Value value) {
    Operation *producer = value.getDefiningOp();
    if (!producer || !isFusable(producer))
      return true;
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      return !reducesLeading(user) && graph.groupOf(user) != graph.groupOf(producer);
    });
  }

  /// The ops between materialized values and the operand of a sum.
  llvm::SetVector<Operation *> coneOf(Operation *sum, llvm::SetVector<Value> &leaves) {
    llvm::SetVector<Operation *> cone;
    SmallVector<Value> pending = {sum->getOperand(0)};
    while (!pending.empty()) {
      Value value = pending.pop_back_val();
      Operation *op = value.getDefiningOp();
      bool isRepeated =
          op && (isSinkable(op) || (!isMaterialized(value) && (isa<ElementwiseOp>(op) || isa<model::MaskTailOp>(op)) &&
                                    elements(value) == elements(sum->getOperand(0))));
      if (!isRepeated) {
        leaves.insert(value);
        continue;
      }
      if (cone.insert(op))
        llvm::append_range(pending, op->getOperands());
    }
    return cone;
  }

  void addColumnSum(Operation *sum) {
    llvm::SetVector<Value> leaves;
    llvm::SetVector<Operation *> cone = coneOf(sum, leaves);
    int64_t large = llvm::count_if(leaves, [&](Value leaf) { return elements(leaf) == elements(sum->getOperand(0)); });
    Node node;
    node.isKernel = true;
    node.outputs = {sum->getResult(0)};
    if (large <= maximalLeaves)
      node.members.assign(cone.begin(), cone.end());
    node.members.push_back(sum);
    sortMembers(node);
    if (!buildCandidate(node.members, node.outputs))
      node.members = {sum};
    if (!joinColumnNode(node, leaves))
      nodes.push_back(std::move(node));
  }

  /// Sums over the same rows that read the same large tensor share one pass over it.
  bool joinColumnNode(const Node &node, const llvm::SetVector<Value> &leaves) {
    for (Node &other : nodes) {
      bool isNeighbour =
          other.isKernel && reducesLeading(other.members.back()) && llvm::any_of(other.members, [&](Operation *op) {
            return llvm::any_of(op->getOperands(), [&](Value operand) {
              return leaves.contains(operand) && elements(operand) == elements(node.members.back()->getOperand(0));
            });
          });
      // Sums that end in accumulators have no path to each other.
      bool areIndependent = isNeighbour && llvm::all_of(other.outputs, endsInAccumulator) &&
                            llvm::all_of(node.outputs, endsInAccumulator);
      if (!areIndependent)
        continue;
      Node joined = other;
      for (Operation *op : node.members)
        if (!llvm::is_contained(joined.members, op))
          joined.members.push_back(op);
      llvm::append_range(joined.outputs, node.outputs);
      sortMembers(joined);
      if (!buildCandidate(joined.members, joined.outputs))
        continue;
      other = std::move(joined);
      return true;
    }
    return false;
  }

  static bool endsInAccumulator(Value value) {
    return llvm::all_of(value.getUsers(), [](Operation *user) { return isa<model::AccumulateOp>(user); });
  }

  void sortMembers(Node &node) {
    llvm::sort(node.members, [&](Operation *a, Operation *b) { return graph.position(a) < graph.position(b); });
  }

  /// What the nodes so far read, and what that needs inside of row groups.
  void markLive() {
    for (const Node &node : nodes) {
      llvm::SmallPtrSet<Operation *, 16> inside(node.members.begin(), node.members.end());
      for (Operation *op : node.members)
        for (Value operand : op->getOperands())
          if (!inside.contains(operand.getDefiningOp()))
            need(operand, -1);
    }
    while (!pending.empty()) {
      Operation *op = pending.pop_back_val();
      for (Value operand : op->getOperands())
        need(operand, graph.groupOf(op));
    }
  }

  void need(Value value, int group) {
    Operation *op = value.getDefiningOp();
    if (!op || !isFusable(op))
      return;
    if (graph.groupOf(op) != group)
      read.insert(value);
    if (live.insert(op).second)
      pending.push_back(op);
  }

  void addRowGroup(int group) {
    Node node;
    node.isKernel = true;
    for (Operation *op : graph.members(group)) {
      if (!live.contains(op))
        continue;
      node.members.push_back(op);
      if (read.contains(op->getResult(0)))
        node.outputs.push_back(op->getResult(0));
    }
    if (!node.members.empty())
      nodes.push_back(std::move(node));
  }

  const FusionGraph &graph;
  std::vector<Node> nodes;
  llvm::DenseSet<Value> read;
  llvm::DenseSet<Operation *> live;
  SmallVector<Operation *> pending;
};

/// Nodes in an order in which each stands after what it reads, otherwise by the position of its last op.
SmallVector<unsigned> orderNodes(const std::vector<Node> &nodes, const FusionGraph &graph) {
  llvm::DenseMap<Value, unsigned> makers;
  for (auto [index, node] : llvm::enumerate(nodes)) {
    if (node.isKernel)
      for (Value output : node.outputs)
        makers[output] = index;
    else
      for (Value result : node.members.front()->getResults())
        makers[result] = index;
  }
  std::vector<std::set<unsigned>> users(nodes.size());
  std::vector<unsigned> missing(nodes.size(), 0);
  for (auto [index, node] : llvm::enumerate(nodes)) {
    llvm::SmallPtrSet<Operation *, 16> inside(node.members.begin(), node.members.end());
    for (Operation *op : node.members)
      for (Value operand : op->getOperands())
        if (auto maker = makers.find(operand); maker != makers.end() && !inside.contains(operand.getDefiningOp()) &&
                                               users[maker->second].insert(index).second)
          ++missing[index];
  }
  std::set<std::pair<unsigned, unsigned>> ready;
  auto add = [&](unsigned index) { ready.insert({graph.position(nodes[index].members.back()), index}); };
  for (unsigned index = 0; index < nodes.size(); ++index)
    if (missing[index] == 0)
      add(index);
  SmallVector<unsigned> order;
  while (!ready.empty()) {
    unsigned index = ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(index);
    for (unsigned user : users[index])
      if (--missing[user] == 0)
        add(user);
  }
  return order;
}

LogicalResult createFused(const Node &node, OpBuilder &builder, IRMapping &mapping) {
  std::optional<Candidate> candidate = buildCandidate(node.members, node.outputs);
  if (!candidate)
    return node.members.back()->emitOpError("has no kernel: its operands lie in no way along rows and columns");
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
  std::vector<Node> nodes = NodeBuilder(graph).build();
  Block &block = function.getBody().front();
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  IRMapping mapping;
  for (unsigned index : orderNodes(nodes, graph)) {
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
