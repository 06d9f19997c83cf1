#include "compiler/codegen/value_shapes.h"

#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "dialects/interfaces.h"
#include "dialects/model/dialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace espalier::codegen {

int64_t axisBits(ArrayAttr axes) {
  int64_t bits = 0;
  for (StringRef axis : axes.getAsValueRange<StringAttr>())
    bits |= exec::axisBit(axis);
  return bits;
}

std::string nameInPlan(StringRef program, StringRef value) {
  return value.consume_front("%") ? (program + "/" + value).str() : value.str();
}

std::string nameInPlan(StringRef program, exec::BufferAttr buffer) {
  return nameInPlan(program, buffer.getValue().getValue());
}

void ValueShapes::setSplits(Value value, Splits axes) {
  auto type = cast<RankedTensorType>(value.getType());
  for (auto [name, size, split] : llvm::zip_equal(dimNames(type), type.getShape(), axes))
    seen.try_emplace({name.str(), size}, split);
  splits[value] = std::move(axes);
}

void ValueShapes::addArgument(BlockArgument argument, StringRef name) {
  auto type = cast<RankedTensorType>(argument.getType());
  unsigned number = argument.getArgNumber();
  Splits axes;
  if (auto sharding = dist::shardingAttr.ofArgument(function, number);
      sharding && static_cast<int64_t>(sharding.getDims().size()) == type.getRank()) {
    for (ArrayAttr dim : sharding.getDims())
      axes.push_back(axisBits(dim));
    for (StringAttr axis : sharding.getPartial())
      partial[argument] |= exec::axisBit(axis);
    return setSplits(argument, std::move(axes));
  }
  if (auto found = kept.find(name.str()); found != kept.end() && found->second.tensor == type) {
    partial[argument] = found->second.partial;
    return setSplits(argument, found->second.split);
  }
  for (auto [dim, size] : llvm::zip_equal(dimNames(type), type.getShape()))
    axes.push_back(splitByPlan(dim, size));
  setSplits(argument, std::move(axes));
}

/// Returns the mesh axes over which the plan shards dimensions of this name, outermost first.
static SmallVector<StringRef> placedOver(ModuleOp module, StringAttr name) {
  auto placement = dist::dimsAttr.of(module);
  auto axes = placement ? placement.getAs<ArrayAttr>(name) : ArrayAttr();
  return axes ? llvm::to_vector(axes.getAsValueRange<StringAttr>()) : SmallVector<StringRef>();
}

/// Returns a dimension's size over all ranks; for the batch, that of a micro-batch. Returns 0 if the module does not
/// define it.
static int64_t wholeSize(ModuleOp module, StringAttr name) {
  auto sizes = model::sizesAttr.of(module);
  if (auto size = sizes ? sizes.getAs<IntegerAttr>(name) : IntegerAttr())
    return size.getInt();
  auto plan = exec::planAttr.of(module);
  auto mesh = dist::meshAttr.of(module);
  if (!plan || !mesh || name != "batch")
    return 0;
  int64_t whole = plan.getMicroBatchSize();
  for (StringRef axis : placedOver(module, name))
    whole *= mesh.size(axis);
  return whole;
}

/// Returns the axes over which the plan shards a dimension of this name, if `size` is that of a shard. A smaller shard
/// is additionally split over tp, by sequence parallelism or for saved inputs.
int64_t ValueShapes::splitByPlan(StringAttr name, int64_t size) const {
  auto module = function->getParentOfType<ModuleOp>();
  auto mesh = dist::meshAttr.of(module);
  if (!mesh)
    return 0;
  int64_t whole = wholeSize(module, name);
  int64_t bits = 0, parts = 1;
  for (StringRef axis : placedOver(module, name)) {
    if (mesh.size(axis) == 1 || (whole > 0 && whole <= size * parts))
      continue;
    parts *= mesh.size(axis);
    bits |= exec::axisBit(axis);
  }
  if (whole > 0 && mesh.size("tp") > 1 && size * parts * mesh.size("tp") == whole)
    bits |= exec::axisBit("tp");
  return bits;
}

int64_t ValueShapes::splitOf(Operation *op, StringAttr name, int64_t size) const {
  for (Value operand : op->getOperands()) {
    auto found = splits.find(operand);
    int64_t dim = dimIndex(operand.getType(), name);
    if (found != splits.end() && dim >= 0 && cast<RankedTensorType>(operand.getType()).getDimSize(dim) == size)
      return found->second[dim];
  }
  auto known = seen.find({name.str(), size});
  return known == seen.end() ? splitByPlan(name, size) : known->second;
}

/// Returns the operands that a result depends on. The bias gradient beside a weight gradient depends only on the second
/// operand.
static ValueRange madeOf(Operation *op, Value result) {
  auto product = dyn_cast<exec::ProductOp>(op);
  bool isBiasGradient = product && product.getEpilogue() == "bias_gradient" && result == product.getExtra();
  return isBiasGradient ? op->getOperands().slice(1, 1) : ValueRange(op->getOperands());
}

/// Returns the axes that shard operands of an op but not its result.
int64_t ValueShapes::lostAxes(Operation *op, Value result) const {
  auto axesOf = [&](Value value) {
    int64_t axes = 0;
    for (int64_t split : splits.lookup(value))
      axes |= split;
    return axes;
  };
  int64_t axes = 0;
  for (Value operand : madeOf(op, result))
    axes |= axesOf(operand);
  return axes & ~axesOf(result);
}

/// Propagates shardings through the body of a fused op.
void ValueShapes::followFused(exec::FusedOp fused) {
  Block &body = fused.getBody().front();
  for (auto [argument, input] : llvm::zip_equal(body.getArguments(), fused.getInputs())) {
    splits[argument] = splits.lookup(input);
    partial[argument] = partial.lookup(input);
  }
  follow(body);
  for (auto [result, stored] : llvm::zip_equal(fused.getResults(), body.getTerminator()->getOperands())) {
    setSplits(result, splits.lookup(stored));
    partial[result] = partial.lookup(stored);
  }
}

/// Applies a collective's change of shardings. It needs its own rule, because the changed dimension has another size
/// than the operand's.
void ValueShapes::followCollective(Operation *op) {
  Value x = op->getOperand(0), result = op->getResult(0);
  Splits before = splits.lookup(x), axes = splits.lookup(result);
  auto moved = [&](int64_t dim, ArrayAttr by, bool isSplit) {
    axes[dim] = isSplit ? before[dim] | axisBits(by) : before[dim] & ~axisBits(by);
  };
  int64_t terms = partial.lookup(x);
  if (auto reduce = dyn_cast<dist::AllReduceOp>(op)) {
    terms &= ~axisBits(reduce.getAxes());
  } else if (auto gather = dyn_cast<dist::AllGatherOp>(op)) {
    moved(gather.getDim(), gather.getAxes(), /*isSplit=*/false);
  } else if (auto scatter = dyn_cast<dist::ReduceScatterOp>(op)) {
    moved(scatter.getDim(), scatter.getAxes(), /*isSplit=*/true);
    terms &= ~axisBits(scatter.getAxes());
  } else if (auto slice = dyn_cast<dist::SliceOp>(op)) {
    moved(slice.getDim(), slice.getAxes(), /*isSplit=*/true);
  } else if (auto exchange = dyn_cast<dist::AllToAllOp>(op)) {
    moved(exchange.getSplit(), exchange.getAxes(), /*isSplit=*/true);
    moved(exchange.getConcat(), exchange.getAxes(), /*isSplit=*/false);
  }
  setSplits(result, std::move(axes));
  partial[result] = terms;
}

/// Returns the axes that a view states for its result, none if it states nothing. Returns nothing for other ops.
static SmallVector<int64_t> viewedSplits(Operation &op) {
  auto view = dyn_cast<model::ViewOp>(op);
  if (!view)
    return {};
  SmallVector<int64_t> axes(cast<RankedTensorType>(view.getType()).getRank());
  if (auto sharding = dist::shardingAttr.of(&op))
    llvm::transform(sharding.getDims(), axes.begin(), axisBits);
  return axes;
}

void ValueShapes::follow(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (auto fused = dyn_cast<exec::FusedOp>(op)) {
      followFused(fused);
      continue;
    }
    for (Value result : op.getResults()) {
      auto type = cast<RankedTensorType>(result.getType());
      Splits axes = viewedSplits(op);
      if (axes.empty())
        for (auto [name, size] : llvm::zip_equal(dimNames(type), type.getShape()))
          axes.push_back(splitOf(&op, name, size));
      setSplits(result, std::move(axes));
      int64_t terms = isa<model::ViewOp>(op) ? 0 : lostAxes(&op, result);
      for (Value operand : madeOf(&op, result))
        terms |= partial.lookup(operand);
      partial[result] = terms;
    }
    if (isa<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp, dist::AllToAllOp, dist::SliceOp>(op))
      followCollective(&op);
  }
}

ValueShape ValueShapes::of(Value value) const {
  Splits axes = splits.lookup(value);
  int64_t sequence = dimIndex(value.getType(), "seq");
  bool isSplit =
      sequence >= 0 && sequence < static_cast<int64_t>(axes.size()) && (axes[sequence] & exec::axisBit("cp"));
  bool isZigzag = isSplit && dist::zigzagAttr.isOn(function->getParentOfType<ModuleOp>());
  return {cast<RankedTensorType>(value.getType()), axes, partial.lookup(value), isZigzag};
}

ValueShape ValueShapes::partsOf(RankedTensorType part, int64_t parts, const ValueShape &whole) const {
  SmallVector<int64_t> sizes = {parts}, axes = {0};
  SmallVector<StringAttr> names = {StringAttr::get(part.getContext(), partDim)};
  llvm::append_range(sizes, part.getShape());
  llvm::append_range(names, dimNames(part));
  llvm::append_range(axes, whole.split);
  return {namedTensor(sizes, names, part.getElementType()), axes, whole.partial, whole.isZigzag};
}

void ValueShapes::set(StringRef name, ValueShape shape) {
  if (!name.starts_with("%"))
    kept.insert_or_assign(name.str(), shape);
  shapes.try_emplace(name.str(), std::move(shape));
}

DictionaryAttr ValueShapes::all() const {
  Builder b(function->getContext());
  SmallVector<NamedAttribute> entries;
  for (const auto &[name, shape] : shapes) {
    SmallVector<Attribute> parts = {TypeAttr::get(shape.tensor), b.getDenseI64ArrayAttr(shape.split),
                                    b.getI64IntegerAttr(shape.partial)};
    if (shape.isZigzag)
      parts.push_back(b.getUnitAttr());
    entries.push_back(b.getNamedAttr(name, b.getArrayAttr(parts)));
  }
  return b.getDictionaryAttr(entries);
}

std::optional<ValueShape> shapeIn(DictionaryAttr shapes, StringAttr value) {
  auto parts = shapes ? shapes.getAs<ArrayAttr>(value) : ArrayAttr();
  if (!parts)
    return std::nullopt;
  return ValueShape{cast<RankedTensorType>(cast<TypeAttr>(parts[0]).getValue()),
                    SmallVector<int64_t>(cast<DenseI64ArrayAttr>(parts[1]).asArrayRef()),
                    cast<IntegerAttr>(parts[2]).getInt(), parts.size() > 3};
}

} // namespace espalier::codegen
