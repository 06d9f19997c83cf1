// Decides which ops become one kernel: the row groups of FusionGraph, and sums over rows with clones of the ops that
// they read. A sum joins a row group or another sum that reads or makes the same tensors, unless they depend on each
// other.
#include "compiler/codegen/kernel_nodes.h"

#include "compiler/codegen/kernel_shape.h"
#include "dialects/model/dialect.h"

#include "llvm/ADT/SmallPtrSet.h"

#include <set>

using namespace mlir;

namespace espalier::codegen {

namespace {

/// Largest number of full-size tensors that a column kernel reads to recompute a sum's operand. With more, the operand
/// is stored.
constexpr int maximalLeaves = 3;

int64_t elements(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

/// Splits the function into nodes.
class NodeBuilder {
public:
  explicit NodeBuilder(const FusionGraph &graph) : graph(graph) {}

  std::vector<KernelNode> build() {
    for (Operation *op : graph.ops())
      if (reducesLeading(op))
        addColumnSum(op);
      else if (!isFusable(op))
        addPlain(op);
    markLive();
    for (Operation *op : graph.ops())
      if (isFusable(op) && graph.members(graph.groupOf(op)).front() == op)
        addRowGroup(graph.groupOf(op));
    joinSums(/*toRows=*/true);
    joinSums(/*toRows=*/false);
    return std::move(nodes);
  }

private:
  void addPlain(Operation *op) {
    KernelNode node;
    node.members = {op};
    node.position = graph.position(op);
    nodes.push_back(std::move(node));
  }

  /// Returns whether the value is stored independently of column sums: an op outside its group that is not a sum over
  /// rows reads it.
  bool isMaterialized(Value value) {
    Operation *producer = value.getDefiningOp();
    if (!producer || !isFusable(producer))
      return true;
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      return !reducesLeading(user) && graph.groupOf(user) != graph.groupOf(producer);
    });
  }

  /// Returns the ops between stored values and the operand of a sum.
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
    KernelNode node;
    node.isKernel = true;
    node.position = graph.position(sum);
    node.outputs = {sum->getResult(0)};
    if (large <= maximalLeaves)
      node.members.assign(cone.begin(), cone.end());
    node.members.push_back(sum);
    sortMembers(node);
    if (!buildCandidate(node.members, node.outputs))
      node.members = {sum};
    nodes.push_back(std::move(node));
  }

  void sortMembers(KernelNode &node) {
    llvm::sort(node.members, [&](Operation *a, Operation *b) { return graph.position(a) < graph.position(b); });
  }

  /// Marks the values that the current nodes read, and the ops inside row groups that these values need.
  void markLive() {
    for (const KernelNode &node : nodes) {
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
    KernelNode node;
    node.isKernel = true;
    for (Operation *op : graph.members(group)) {
      if (!live.contains(op))
        continue;
      node.members.push_back(op);
      if (read.contains(op->getResult(0)))
        node.outputs.push_back(op->getResult(0));
    }
    if (node.members.empty())
      return;
    node.position = graph.position(node.members.back());
    nodes.push_back(std::move(node));
  }

  /// Joins sums with kernels that already read or make their operands, so that these tensors are read only once.
  /// Repeats until nothing joins, because a value that only sums read is then no longer a result.
  void joinSums(bool toRows) {
    for (bool isNew = true; isNew;) {
      isNew = false;
      for (size_t sum = 0; sum < nodes.size();) {
        if (isSums(nodes[sum]) && joinSum(sum, toRows)) {
          nodes.erase(nodes.begin() + static_cast<int64_t>(sum));
          isNew = true;
        } else {
          ++sum;
        }
      }
    }
  }

  static bool isRowSum(Value value) { return reducesLeading(value.getDefiningOp()); }
  static bool isSums(const KernelNode &node) {
    return node.isKernel && !node.outputs.empty() && llvm::all_of(node.outputs, isRowSum);
  }

  /// Tries to join a sum with the kernels that share large tensors with it, fewest additional reads first.
  bool joinSum(size_t sum, bool toRows) {
    std::vector<std::pair<int64_t, size_t>> others;
    for (size_t other = 0; other < nodes.size(); ++other)
      if (other != sum && nodes[other].isKernel && isSums(nodes[other]) != toRows)
        if (std::optional<int64_t> more = countMore(nodes[other], nodes[sum]))
          others.push_back({*more, other});
    llvm::sort(others);
    return llvm::any_of(others, [&](auto pair) { return tryJoin(pair.second, sum); });
  }

  bool tryJoin(size_t other, size_t sum) {
    std::vector<KernelNode> joined = nodes;
    KernelNode &node = joined[other];
    if (isSums(node))
      node.position = std::max(node.position, nodes[sum].position);
    for (Operation *op : nodes[sum].members)
      if (!llvm::is_contained(node.members, op))
        node.members.push_back(op);
    sortMembers(node);
    joined[sum] = KernelNode();
    llvm::erase_if(node.outputs, [&](Value output) { return !isReadOutside(joined, other, output); });
    llvm::append_range(node.outputs, nodes[sum].outputs);
    if (!buildCandidate(node.members, node.outputs) || orderNodes(joined).size() != joined.size())
      return false;
    nodes = std::move(joined);
    return true;
  }

  /// Returns the number of large tensors that the sum reads and the other kernel neither reads nor makes. Returns
  /// nothing if they share none.
  static std::optional<int64_t> countMore(const KernelNode &other, const KernelNode &sum) {
    int64_t size = elements(sum.outputs.front().getDefiningOp()->getOperand(0));
    llvm::SmallDenseSet<Value> made, known, wanted;
    for (Operation *op : sum.members)
      made.insert(op->getResult(0));
    for (Operation *op : other.members) {
      known.insert(op->getResult(0));
      known.insert(op->operand_begin(), op->operand_end());
    }
    for (Operation *op : sum.members)
      for (Value operand : op->getOperands())
        if (elements(operand) == size && !made.contains(operand))
          wanted.insert(operand);
    int64_t more = llvm::count_if(wanted, [&](Value value) { return !known.contains(value); });
    return more < static_cast<int64_t>(wanted.size()) ? std::optional(more) : std::nullopt;
  }

  static bool isReadOutside(ArrayRef<KernelNode> nodes, size_t maker, Value value) {
    if (isRowSum(value))
      return true;
    for (auto [index, node] : llvm::enumerate(nodes))
      if (index != maker && !llvm::is_contained(node.members, value.getDefiningOp()))
        for (Operation *op : node.members)
          if (llvm::is_contained(op->getOperands(), value))
            return true;
    return false;
  }

  const FusionGraph &graph;
  std::vector<KernelNode> nodes;
  llvm::DenseSet<Value> read;
  llvm::DenseSet<Operation *> live;
  SmallVector<Operation *> pending;
};

} // namespace

std::vector<KernelNode> buildNodes(const FusionGraph &graph) { return NodeBuilder(graph).build(); }

SmallVector<unsigned> orderNodes(ArrayRef<KernelNode> nodes) {
  llvm::DenseMap<Value, unsigned> makers;
  for (auto [index, node] : llvm::enumerate(nodes)) {
    if (node.isKernel)
      for (Value output : node.outputs)
        makers[output] = index;
    else if (!node.members.empty())
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
  auto add = [&](unsigned index) { ready.insert({nodes[index].position, index}); };
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

} // namespace espalier::codegen
