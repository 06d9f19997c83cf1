// Decides the shardings of the operands and results of every op of a joint function, in one sweep in program order. An
// op's factors are its named dimensions. Each factor takes the axes of its first claimant: parameters claim first, then
// the sharding that a result must have, then the other operands in order. An axis serves one factor of an op. Example
// (tp splits the stream's sequence and the heads): q = x[b, s:tp, h] w[h, n:tp, d] gives tp to n, so x must be
// unsharded in s (an all-gather) and q is [b, s, n:tp, d]. With x[b, s:cp,tp, h] the outer axis stays free: x is
// gathered over tp only and q is [b, s:cp, n:tp, d].
//
// Where tokens are routed and moved to experts, the tokens of a sequence and the slots of experts are one factor. It
// takes the axes that the plan gives to `capacity`.
#include "compiler/partition/layout.h"
#include "compiler/passes.h"

#include "dialects/attributes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_PROPAGATESHARDINGS
#include "compiler/passes.h.inc"

namespace {

/// The axes that each factor of an op has claimed.
class FactorAxes {
public:
  FactorAxes(ShardableOp op, const Layout &layout)
      : op(op), slotAxes(layout.axesOf("capacity")),
        movesTokens(isa<model::RouteOp, model::DispatchOp, model::CombineOp>(op)) {}

  /// Each dimension claims its axes from the outermost inwards, up to the first axis that another factor has. A later
  /// claimant adds inner axes if the earlier claims agree with its outer axes.
  void claim(Type type, const Sharding &sharding) {
    for (auto [dim, axes] : llvm::zip_equal(dimNames(type), sharding.dims)) {
      if (axes.empty() || op.factorKind(dim) == FactorKind::Blocked)
        continue;
      Axes &claimed = axesOf[factorOf(dim)];
      if (claimed.size() > axes.size() || ArrayRef(axes).take_front(claimed.size()) != ArrayRef(claimed))
        continue;
      for (StringAttr axis : ArrayRef(axes).drop_front(claimed.size())) {
        if (llvm::is_contained(used, axis) || (isOfTokens(dim) && !llvm::is_contained(slotAxes, axis)))
          break;
        claimed.push_back(axis);
        used.push_back(axis);
      }
    }
  }

  Sharding of(Type type) const {
    Sharding sharding;
    for (StringAttr dim : dimNames(type))
      sharding.dims.push_back(axesOf.lookup(factorOf(dim)));
    return sharding;
  }

  /// Returns the axes of the summed factors among the operands' dimensions, in order.
  Axes summed() {
    Axes axes;
    llvm::SmallDenseSet<StringAttr> seen;
    for (Value operand : op->getOperands())
      for (StringAttr dim : dimNames(operand.getType()))
        if (seen.insert(dim).second && op.factorKind(dim) == FactorKind::Sum)
          llvm::append_range(axes, axesOf.lookup(dim));
    return axes;
  }

private:
  bool isOfTokens(StringAttr dim) const { return movesTokens && (dim == "seq" || dim == "capacity"); }
  StringAttr factorOf(StringAttr dim) const { return isOfTokens(dim) ? StringAttr::get(dim.getContext(), "seq") : dim; }

  ShardableOp op;
  ArrayRef<StringAttr> slotAxes; ///< over which the plan splits the slots of experts
  bool movesTokens;
  llvm::DenseMap<StringAttr, Axes> axesOf; ///< by factor
  Axes used;
};

/// Propagates shardings through one function.
class Propagation {
public:
  Propagation(const Layout &layout, func::FuncOp function) : layout(layout), function(function) {}

  LogicalResult run() {
    Block &body = function.getBody().front();
    for (BlockArgument argument : body.getArguments()) {
      auto role = model::roleAttr.ofArgument(function, argument.getArgNumber());
      shardings[argument] = layout.argument(argument.getType(), role ? role.getValue() : "");
    }
    for (Operation &op : body.without_terminator()) {
      auto shardable = dyn_cast<ShardableOp>(&op);
      if (!shardable)
        return op.emitOpError("cannot be sharded");
      if (auto accumulate = dyn_cast<model::AccumulateOp>(&op))
        placeAccumulate(accumulate);
      else if (auto keep = dyn_cast<model::KeepMaximaOp>(&op))
        placeMaxima(keep);
      else if (auto cotangent = dyn_cast<model::CotangentOp>(&op))
        placeCotangent(cotangent);
      else
        place(shardable);
    }
    placeResults(body.getTerminator());
    for (BlockArgument argument : body.getArguments())
      function.setArgAttr(argument.getArgNumber(), dist::shardingAttr, attribute(shardings[argument]));
    return success();
  }

private:
  dist::ShardingAttr attribute(const Sharding &sharding) { return sharding.attribute(function.getContext()); }

  /// Returns the sharding of an operand after its partial sums are reduced.
  Sharding resolved(Value value) const {
    const Sharding &sharding = shardings.find(value)->second;
    return sharding.isPartial() ? layout.nominal(value.getType()) : sharding;
  }

  bool isParameter(Value value) {
    if (auto convert = value.getDefiningOp<model::ConvertOp>())
      value = convert.getX();
    auto argument = dyn_cast<BlockArgument>(value);
    auto role = argument ? model::roleAttr.ofArgument(function, argument.getArgNumber()) : StringAttr();
    return role && role.getValue() == "parameter";
  }

  void record(Operation *op, ArrayRef<Sharding> operands, ArrayRef<Sharding> results) {
    auto array = [&](ArrayRef<Sharding> list) {
      SmallVector<Attribute> attributes;
      for (const Sharding &sharding : list)
        attributes.push_back(attribute(sharding));
      return ArrayAttr::get(op->getContext(), attributes);
    };
    dist::operandsAttr.set(op, array(operands));
    dist::shardingsAttr.set(op, array(results));
    for (auto [result, sharding] : llvm::zip_equal(op->getResults(), results))
      shardings[result] = sharding;
  }

  /// Returns whether the op is linear and all its operands are partial over the same axes, so that partial sums pass
  /// through.
  bool passesPartial(ShardableOp op) const {
    if (op->getNumOperands() == 0)
      return false;
    const Sharding &first = shardings.find(op->getOperand(0))->second;
    return first.isPartial() && op.passesPartial() && llvm::all_of(op->getOperands(), [&](Value operand) {
             const Sharding &sharding = shardings.find(operand)->second;
             return sharding == first && operand.getType() == op->getOperand(0).getType();
           });
  }

  /// Returns the accumulator to which a value is added, by itself or as one term of a sum, or null. A parameter that a
  /// segment reads twice has a sum of gradients.
  static Value accumulatorOf(Value value) {
    for (Operation *user : value.getUsers()) {
      if (auto accumulate = dyn_cast<model::AccumulateOp>(user); accumulate && accumulate.getX() == value)
        return accumulate.getAccumulator();
      if (auto sum = dyn_cast<model::AddOp>(user); sum && sum.getType() == value.getType())
        if (Value accumulator = accumulatorOf(sum))
          return accumulator;
    }
    return Value();
  }

  void place(ShardableOp op) {
    FactorAxes factors(op, layout);
    bool passes = passesPartial(op);
    auto placeOf = [&](Value operand) { return passes ? shardings.find(operand)->second : resolved(operand); };
    for (Value operand : op->getOperands())
      if (isParameter(operand))
        factors.claim(operand.getType(), placeOf(operand));
    for (Value result : op->getResults())
      if (Value accumulator = accumulatorOf(result))
        factors.claim(result.getType(), shardings.find(accumulator)->second);
    for (Value operand : op->getOperands())
      factors.claim(operand.getType(), placeOf(operand));
    // What is repeated along a sequence is split where it is made, because a slice does not keep the zigzag order.
    if (auto repeated = dyn_cast<model::BroadcastOp>(op.getOperation()); repeated && layout.isZigzag())
      factors.claim(repeated.getType(), layout.argument(repeated.getType(), ""));

    SmallVector<Sharding> operands, results;
    for (Value operand : op->getOperands()) {
      operands.push_back(factors.of(operand.getType()));
      if (passes)
        operands.back().partial = shardings.find(operand)->second.partial;
    }
    Axes partial = passes ? operands.front().partial : Axes();
    llvm::append_range(partial, factors.summed());
    partial = layout.inMeshOrder(partial);
    for (Value result : op->getResults()) {
      results.push_back(factors.of(result.getType()));
      results.back().partial = partial;
    }
    record(op, operands, results);
  }

  /// An accumulator keeps the sharding of its dimensions and becomes partial over the axes of the added value.
  void placeAccumulate(model::AccumulateOp op) {
    Sharding place = shardings[op.getAccumulator()];
    place.partial = shardings[op.getX()].partial;
    shardings[op.getAccumulator()] = place;
    record(op, {place, place}, {place});
  }

  /// Maxima keep the sharding of the heads and become partial over the axes of the dimensions that they lack.
  void placeMaxima(model::KeepMaximaOp op) {
    Sharding x = resolved(op.getX()), place = resolved(op.getMaxima());
    Axes partial;
    for (auto [dim, axes] : llvm::zip_equal(dimNames(op.getX().getType()), x.dims))
      if (dimIndex(op.getType(), dim) < 0)
        llvm::append_range(partial, axes);
      else
        place.dims[dimIndex(op.getType(), dim)] = axes;
    place.partial = layout.inMeshOrder(partial);
    shardings[op.getMaxima()] = place;
    record(op, {place, x}, {place});
  }

  /// The stream's gradient arrives with the stream's sharding. A loss is not resharded and may stay a partial sum.
  void placeCotangent(model::CotangentOp op) {
    Sharding place = layout.nominal(op.getType());
    bool isLoss = dimNames(op.getType()).empty();
    record(op, {isLoss ? shardings[op.getStream()] : place}, {place});
  }

  /// Streams and their gradients get the stream's sharding; other results keep theirs.
  void placeResults(Operation *terminator) {
    SmallVector<Sharding> operands;
    for (auto [index, operand] : llvm::enumerate(terminator->getOperands())) {
      auto role = model::roleAttr.ofResult(function, index);
      bool isStream = role && (role.getValue() == "stream" || role.getValue() == "cotangent");
      operands.push_back(isStream ? layout.nominal(operand.getType()) : shardings[operand]);
    }
    record(terminator, operands, {});
  }

  const Layout &layout;
  func::FuncOp function;
  llvm::DenseMap<Value, Sharding> shardings;
};

struct PropagateShardingsPass : impl::PropagateShardingsBase<PropagateShardingsPass> {
  void runOnOperation() override {
    Layout layout(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(Propagation(layout, function).run()))
        return signalPassFailure();
  }
};

} // namespace
} // namespace espalier
