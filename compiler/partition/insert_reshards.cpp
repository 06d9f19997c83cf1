// A reshard is needed where a use wants another sharding than its producer gives. Partial sums are reduced once, at the
// producer. Other reshards are inserted before the first use of their phase, one per (value, target). So a value
// gathered in forward is gathered again in backward instead of being saved.
#include "compiler/partition/layout.h"
#include "compiler/passes.h"

#include "dialects/attributes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_INSERTRESHARDS
#include "compiler/passes.h.inc"

namespace {

class ReshardInserter {
public:
  ReshardInserter(const Layout &layout, func::FuncOp function)
      : layout(layout), body(function.getBody().front()), builder(function.getContext()), backward(backwardOps(body)) {}

  void run() {
    for (Operation &op : llvm::make_early_inc_range(body)) {
      auto wanted = dist::operandsAttr.of(&op);
      if (!wanted)
        continue;
      for (auto [index, attribute] : llvm::enumerate(wanted.getAsRange<dist::ShardingAttr>()))
        op.setOperand(index, moved(op.getOperand(index), attribute, &op));
      op.removeAttr(dist::operandsAttr);
    }
  }

private:
  Value moved(Value value, dist::ShardingAttr to, Operation *user) {
    Sharding target(to);
    if (shardingOf(value) == target)
      return value;
    if (shardingOf(value).isPartial() && !target.isPartial())
      value = sum(value);
    if (shardingOf(value) == target)
      return value;
    Value &known = moves[{value, to, backward.contains(user) || isa<func::ReturnOp>(user)}];
    if (!known) {
      builder.setInsertionPoint(user);
      known = reshard(value, to);
    }
    return known;
  }

  /// Reduces a partial value at its producer, to the nominal placement of its dimensions.
  Value sum(Value value) {
    Value &known = sums[value];
    if (!known) {
      builder.setInsertionPointAfterValue(value);
      known = reshard(value, layout.nominal(value.getType()).attribute(builder.getContext()));
    }
    return known;
  }

  Value reshard(Value value, dist::ShardingAttr to) {
    auto from = shardingOf(value).attribute(builder.getContext());
    return builder.create<dist::ReshardOp>(value.getLoc(), value.getType(), value, from, to);
  }

  const Layout &layout;
  Block &body;
  OpBuilder builder;
  llvm::DenseSet<Operation *> backward;
  llvm::DenseMap<std::tuple<Value, Attribute, int>, Value> moves; // keyed by (value, target, is backward)
  llvm::DenseMap<Value, Value> sums;
};

struct InsertReshardsPass : impl::InsertReshardsBase<InsertReshardsPass> {
  void runOnOperation() override {
    Layout layout(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>())
      ReshardInserter(layout, function).run();
  }
};

} // namespace
} // namespace espalier
