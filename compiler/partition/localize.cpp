// Rewrites joint functions from global to local shapes: each op by its own rule, each reshard to the cheapest
// collectives. The resulting IR runs on every device; only #dist.origin and slices depend on the device.
#include "compiler/partition/layout.h"
#include "compiler/passes.h"

#include "dialects/attributes.h"
#include "dialects/model/dialect.h"

#include "format/axes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_LOCALIZE
#include "compiler/passes.h.inc"

namespace {

/// Localizes one function into the body of its replacement.
class Localizer : public LocalizeContext {
public:
  Localizer(const Layout &layout, func::FuncOp from, func::FuncOp to) : layout(layout), from(from), b(to.getContext()) {
    Block &body = to.getBody().front();
    for (auto [global, local] : llvm::zip_equal(from.getBody().front().getArguments(), body.getArguments()))
      locals[global] = local;
    b.setInsertionPointToEnd(&body);
  }

  void run() {
    for (Operation &op : from.getBody().front()) {
      current = &op;
      SmallVector<Value> results;
      if (auto reshard = dyn_cast<dist::ReshardOp>(&op))
        results = {lower(reshard)};
      else if (auto shardable = dyn_cast<ShardableOp>(&op))
        results = shardable.localize(*this);
      else
        results = cloneLocal(&op);
      for (auto [global, local] : llvm::zip_equal(op.getResults(), results))
        locals[global] = local;
      addReplicaWeight(&op);
    }
    if (layout.isZigzag())
      markZigzag();
  }

  Value operand(unsigned index) override { return locals.lookup(current->getOperand(index)); }
  RankedTensorType resultType(unsigned index) override {
    Value result = current->getResult(index);
    return layout.localType(result.getType(), shardingOf(result));
  }
  OpBuilder &builder() override { return b; }

  SmallVector<Attribute> axes(Value global, StringRef dim) override {
    // The op's operand is the result of the reshard before it, so its sharding is already the wanted one.
    Axes axes = shardingOf(global).dims[dimIndex(global.getType(), dim)];
    return SmallVector<Attribute>(axes.begin(), axes.end());
  }

  /// The shard of device (c0, c1, ..) on axes (a0, a1, ..) of a dimension begins at c0 * size / |a0| + c1 * ... Samples
  /// of later micro-batches follow those of earlier ones. In zigzag order, the coordinate on cp counts half shards.
  Attribute origin(Value global, StringRef dim) override {
    int index = dimIndex(global.getType(), dim);
    int64_t size = cast<RankedTensorType>(global.getType()).getDimSize(index);
    SmallVector<StringAttr> names;
    SmallVector<int64_t> strides;
    int64_t stride = size;
    Sharding sharding = shardingOf(global);
    for (StringAttr axis : sharding.dims[index]) {
      stride /= layout.mesh().size(axis.getValue());
      names.push_back(axis);
      strides.push_back(layout.isZigzag() && axis == "cp" ? stride / 2 : stride);
    }
    if (dim == "batch") {
      names.push_back(b.getStringAttr("micro_batch"));
      strides.push_back(size);
    }
    return names.empty() ? Attribute() : dist::OriginAttr::get(b.getContext(), names, strides);
  }

  SmallVector<Value> cloneLocal(Operation *op) override {
    SmallVector<Value> operands;
    SmallVector<Type> results;
    for (Value operand : op->getOperands())
      operands.push_back(locals.lookup(operand));
    for (Value result : op->getResults())
      results.push_back(layout.localType(result.getType(), shardingOf(result)));
    return SmallVector<Value>(cloneWith(op, operands, results)->getResults());
  }

  Operation *cloneWith(Operation *op, ValueRange operands, TypeRange results) override {
    OperationState state(op->getLoc(), op->getName());
    state.addOperands(operands);
    state.addTypes(results);
    for (NamedAttribute attribute : op->getAttrs())
      if (attribute.getName() != "dist.shardings" && attribute.getName() != "dist.operands")
        state.attributes.push_back(attribute);
    return b.create(state);
  }

private:
  /// Marks the local ops that depend on the order of a sequence over cp. Slots, which all-to-alls move, have no order.
  void markZigzag() {
    auto hasContext = [](auto axes) { return llvm::is_contained(axes, "cp"); };
    for (Operation &op : *b.getInsertionBlock()) {
      bool isMoved = isa<dist::AllGatherOp, dist::ReduceScatterOp, dist::SliceOp>(op) &&
                     hasContext(op.getAttrOfType<ArrayAttr>("axes").getAsValueRange<StringAttr>());
      auto origins = op.getAttrOfType<ArrayAttr>("origins");
      bool isPlaced = origins && llvm::any_of(origins, [&](Attribute attribute) {
                        auto origin = dyn_cast<dist::OriginAttr>(attribute);
                        return origin && hasContext(origin.getAxes());
                      });
      if (isMoved || isPlaced)
        dist::zigzagAttr.set(&op);
    }
  }

  ArrayAttr axesAttribute(ArrayRef<StringAttr> axes) {
    return b.getArrayAttr(SmallVector<Attribute>(axes.begin(), axes.end()));
  }

  RankedTensorType resized(Value value, int64_t dim, int64_t numerator, int64_t denominator) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] = shape[dim] * numerator / denominator;
    return namedTensor(shape, dimNames(type), type.getElementType());
  }

  /// Lowers in this order: reduce partial sums (scattered if the target splits a dimension over the same axis), slice
  /// replicated dimensions, move axes between dimensions, gather, slice gathered dimensions.
  Value lower(dist::ReshardOp op) {
    Sharding place(op.getFrom()), target(op.getTo());
    Value value = locals.lookup(op.getX());
    Location loc = op.getLoc();
    Axes toReduce;
    for (StringAttr axis : place.partial) {
      if (llvm::is_contained(target.partial, axis))
        continue;
      int64_t dim = scatterDim(place, target, axis);
      if (dim < 0) {
        toReduce.push_back(axis);
        continue;
      }
      Type type = resized(value, dim, 1, layout.mesh().size(axis.getValue()));
      value = b.create<dist::ReduceScatterOp>(loc, type, value, axesAttribute({axis}), b.getI64IntegerAttr(dim));
      place.dims[dim].push_back(axis);
    }
    if (!toReduce.empty())
      value = b.create<dist::AllReduceOp>(loc, value.getType(), value, axesAttribute(toReduce), b.getStringAttr("sum"));
    value = sliceReplicated(loc, value, place, target);
    value = exchange(loc, value, place, target);
    for (size_t dim = 0; dim < place.dims.size(); ++dim)
      value = move(loc, value, dim, place.dims[dim], target.dims[dim], /*gather=*/true);
    for (size_t dim = 0; dim < place.dims.size(); ++dim)
      value = move(loc, value, dim, place.dims[dim], target.dims[dim], /*gather=*/false);
    return value;
  }

  /// Returns the dimension that the target splits over `axis` right after its current axes, or -1.
  static int64_t scatterDim(const Sharding &place, const Sharding &target, StringAttr axis) {
    for (size_t dim = 0; dim < target.dims.size(); ++dim) {
      size_t have = place.dims[dim].size();
      const Axes &wanted = target.dims[dim];
      if (wanted.size() > have && wanted[have] == axis &&
          ArrayRef(wanted).take_front(have) == ArrayRef(place.dims[dim]))
        return dim;
    }
    return -1;
  }

  /// Slices dimensions that are replicated and that the target splits, so that later collectives move less data. One
  /// slice covers dp_replicate and dp, because an offset counts the ranks of both axes together.
  Value sliceReplicated(Location loc, Value value, Sharding &place, const Sharding &target) {
    for (size_t dim = 0; dim < place.dims.size(); ++dim)
      for (size_t next = place.dims[dim].size(); next < target.dims[dim].size(); next = place.dims[dim].size()) {
        ArrayRef<StringAttr> wanted = target.dims[dim];
        bool isPrefix = wanted.take_front(next) == ArrayRef(place.dims[dim]);
        auto isSplit = [&](StringAttr axis) {
          return llvm::any_of(place.dims, [&](const Axes &axes) { return llvm::is_contained(axes, axis); });
        };
        if (!isPrefix || isSplit(wanted[next]))
          break;
        bool isOuter = wanted[next] == replicateAxis && next + 1 < wanted.size() && !isSplit(wanted[next + 1]);
        Axes longer(wanted.take_front(next + (isOuter ? 2 : 1)));
        value = move(loc, value, dim, place.dims[dim], longer, /*gather=*/false);
      }
    return value;
  }

  /// Emits all-to-alls that move the last axis of one dimension to another dimension, as its next axis. Experts over cp
  /// and ep take cp from their slots, and then ep from the samples, whose dimension precedes that of the slots.
  Value exchange(Location loc, Value value, Sharding &place, const Sharding &target) {
    for (Value before; before != value;)
      value = exchangeOnce(loc, before = value, place, target);
    return value;
  }

  Value exchangeOnce(Location loc, Value value, Sharding &place, const Sharding &target) {
    for (size_t from = 0; from < place.dims.size(); ++from) {
      Axes &have = place.dims[from];
      if (have.empty() || llvm::is_contained(target.dims[from], have.back()))
        continue;
      int64_t to = scatterDim(place, target, have.back());
      if (to < 0)
        continue;
      StringAttr axis = have.pop_back_val();
      int64_t parts = layout.mesh().size(axis.getValue());
      auto type = cast<RankedTensorType>(resized(value, from, parts, 1));
      SmallVector<int64_t> shape(type.getShape());
      shape[to] /= parts;
      value = b.create<dist::AllToAllOp>(loc, namedTensor(shape, dimNames(type), type.getElementType()), value,
                                         axesAttribute({axis}), b.getI64IntegerAttr(to), b.getI64IntegerAttr(from));
      place.dims[to].push_back(axis);
    }
    return value;
  }

  /// Gathers the axes after the common prefix of `have` and `want`, or slices over those of `want`.
  Value move(Location loc, Value value, int64_t dim, Axes &have, const Axes &want, bool gather) {
    size_t common = 0;
    while (common < have.size() && common < want.size() && have[common] == want[common])
      ++common;
    ArrayRef<StringAttr> axes = gather ? ArrayRef(have).drop_front(common) : ArrayRef(want).drop_front(common);
    if (axes.empty())
      return value;
    int64_t parts = layout.size(axes);
    IntegerAttr position = b.getI64IntegerAttr(dim);
    if (gather) {
      Type type = resized(value, dim, parts, 1);
      value = b.create<dist::AllGatherOp>(loc, type, value, axesAttribute(axes), position);
      have.truncate(common);
    } else {
      Type type = resized(value, dim, 1, parts);
      value = b.create<dist::SliceOp>(loc, type, value, axesAttribute(axes), position);
      have = want;
    }
    return value;
  }

  /// Statistics are summed over all devices at the end of the step. A statistic that is equal on the devices of an axis
  /// is divided by the axis size, so that it counts once.
  void addReplicaWeight(Operation *op) {
    auto accumulate = dyn_cast<model::AccumulateOp>(op);
    auto argument = accumulate ? dyn_cast<BlockArgument>(accumulate.getAccumulator()) : BlockArgument();
    auto role = argument ? model::roleAttr.ofArgument(from, argument.getArgNumber()) : StringAttr();
    if (!role || role.getValue() != "statistic")
      return;
    double replicas = 1;
    Axes partial = shardingOf(accumulate.getResult()).partial;
    for (auto [axis, size] : llvm::zip_equal(layout.mesh().getAxes(), layout.mesh().getSizes()))
      if (axis != "pp" && !llvm::is_contained(partial, axis))
        replicas *= size;
    if (replicas == 1)
      return;
    Operation *local = locals.lookup(accumulate.getResult()).getDefiningOp();
    b.setInsertionPoint(local);
    Value share =
        b.create<model::ConstantOp>(op->getLoc(), namedTensor({}, {}, b.getF32Type()), b.getF64FloatAttr(1 / replicas));
    Value x = local->getOperand(1);
    local->setOperand(1, b.create<model::MulOp>(op->getLoc(), x.getType(), x, share));
    b.setInsertionPointAfter(local);
  }

  const Layout &layout;
  func::FuncOp from;
  OpBuilder b;
  Operation *current = nullptr;
  llvm::DenseMap<Value, Value> locals;
};

struct LocalizePass : impl::LocalizeBase<LocalizePass> {
  void runOnOperation() override {
    Layout layout(getOperation());
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
      localizeFunction(layout, function);
  }

  static void localizeFunction(const Layout &layout, func::FuncOp function) {
    OpBuilder builder(function);
    SmallVector<Type> arguments, results;
    for (BlockArgument argument : function.getBody().front().getArguments())
      arguments.push_back(layout.localType(argument.getType(), shardingOf(argument)));
    for (Value result : function.getBody().front().getTerminator()->getOperands())
      results.push_back(layout.localType(result.getType(), shardingOf(result)));
    auto local = builder.create<func::FuncOp>(function.getLoc(), function.getName(),
                                              builder.getFunctionType(arguments, results));
    local->setAttrs(function->getAttrDictionary());
    local.setFunctionType(builder.getFunctionType(arguments, results));
    Block *body = local.addEntryBlock();
    for (auto [to, argument] : llvm::zip_equal(body->getArguments(), function.getArguments()))
      to.setLoc(argument.getLoc());
    Localizer(layout, function, local).run();
    function.erase();
  }
};

} // namespace
} // namespace espalier
