#include "test/compiler/codegen/reference.h"

#include "compiler/codegen/kernel_shape.h"
#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"
#include "format/abi.h"

#include <limits>

using namespace mlir;

namespace espalier::test {

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Returns the index of a named position in a tensor that may lack some of the names.
int64_t indexIn(Type type, ArrayRef<StringAttr> names, ArrayRef<int64_t> position) {
  int64_t index = 0;
  for (auto [name, size] : llvm::zip_equal(dimNames(type), cast<RankedTensorType>(type).getShape()))
    index = index * size + position[llvm::find(names, name) - names.begin()];
  return index;
}

/// Calls `visit` with every position of a shape, in row-major order.
void visitPositions(ArrayRef<int64_t> shape, function_ref<void(ArrayRef<int64_t>)> visit) {
  SmallVector<int64_t> position(shape.size(), 0);
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  for (int64_t i = 0; i < count; ++i) {
    visit(position);
    for (int64_t d = shape.size() - 1; d >= 0 && ++position[d] == shape[d]; --d)
      position[d] = 0;
  }
}

class Evaluation {
public:
  explicit Evaluation(const Surroundings &surroundings) : surroundings(surroundings) {}

  void bind(Value value, Numbers numbers) { values[value] = std::move(numbers); }
  const Numbers &of(Value value) { return values[value]; }
  void run(Operation *op);

private:
  void elementwise(ElementwiseOp op);
  void reduce(Operation *op);
  void contract(model::ContractOp op);
  void pick(Operation *op);
  void dropout(model::DropoutOp op);
  void embed(Operation *op);

  const Surroundings &surroundings;
  llvm::DenseMap<Value, Numbers> values;
};

void Evaluation::elementwise(ElementwiseOp op) {
  Value result = op->getResult(0);
  Numbers out;
  visitPositions(typeOf(result).getShape(), [&](ArrayRef<int64_t> position) {
    SmallVector<double> x;
    for (Value operand : op->getOperands())
      x.push_back(of(operand)[indexIn(operand.getType(), dimNames(result.getType()), position)]);
    out.push_back(op.evaluate(x));
  });
  bind(result, out);
}

void Evaluation::reduce(Operation *op) {
  Value x = op->getOperand(0), result = op->getResult(0);
  bool isSum = isa<model::ReduceSumOp>(op);
  Numbers out(typeOf(result).getNumElements(), isSum ? 0 : -std::numeric_limits<double>::infinity());
  int64_t next = 0;
  visitPositions(typeOf(x).getShape(), [&](ArrayRef<int64_t> position) {
    double &sum = out[indexIn(result.getType(), dimNames(x.getType()), position)];
    double number = of(x)[next++];
    sum = isSum ? sum + number : std::max(sum, number);
  });
  bind(result, out);
}

void Evaluation::contract(model::ContractOp op) {
  SmallVector<StringAttr> names(dimNames(op.getA().getType()));
  SmallVector<int64_t> shape(typeOf(op.getA()).getShape());
  for (auto [name, size] : llvm::zip_equal(dimNames(op.getB().getType()), typeOf(op.getB()).getShape()))
    if (!llvm::is_contained(names, name)) {
      names.push_back(name);
      shape.push_back(size);
    }
  Numbers out(typeOf(op.getResult()).getNumElements(), 0);
  visitPositions(shape, [&](ArrayRef<int64_t> position) {
    out[indexIn(op.getType(), names, position)] += of(op.getA())[indexIn(op.getA().getType(), names, position)] *
                                                   of(op.getB())[indexIn(op.getB().getType(), names, position)];
  });
  bind(op.getResult(), out);
}

void Evaluation::pick(Operation *op) {
  Value labels = op->getOperand(isa<model::PickOp>(op) ? 1 : 0);
  Value wide = isa<model::PickOp>(op) ? op->getOperand(0) : op->getResult(0);
  int64_t columns = typeOf(wide).getShape().back(), rows = typeOf(wide).getNumElements() / columns;
  Numbers out(isa<model::PickOp>(op) ? rows : rows * columns, 0);
  for (int64_t row = 0; row < rows; ++row) {
    auto label = static_cast<int64_t>(of(labels)[row]);
    if (label < 0 || label >= columns)
      continue;
    if (isa<model::PickOp>(op))
      out[row] = of(wide)[row * columns + label];
    else
      out[row * columns + label] = of(op->getOperand(1))[row];
  }
  bind(op->getResult(0), out);
}

void Evaluation::dropout(model::DropoutOp op) {
  ArrayRef<int64_t> local = typeOf(op.getX()).getShape();
  SmallVector<int64_t> whole(op.getUnsplit() ? *op.getUnsplit() : local);
  SmallVector<int64_t> origins(local.size(), 0);
  for (size_t d = 0; op.getOriginsAttr() && d < local.size(); ++d)
    if (auto origin = dyn_cast<dist::OriginAttr>(op.getOriginsAttr()[d]))
      for (auto [axis, stride] : llvm::zip_equal(origin.getAxes(), origin.getStrides()))
        origins[d] += axis == "micro_batch" ? surroundings.microBatch * stride : stride; // coordinates are 1
  double rate = op.getRate().convertToDouble();
  uint32_t stream = surroundings.layer << 8 | op.getId();
  Numbers out;
  visitPositions(local, [&](ArrayRef<int64_t> position) {
    uint64_t element = 0;
    for (size_t d = 1; d < local.size(); ++d)
      element = element * whole[d] + origins[d] + position[d];
    uint32_t bits = rt::randomBits(surroundings.seed, surroundings.step, stream, origins[0] + position[0], element);
    out.push_back(bits >= rt::dropoutThreshold(rate) ? of(op.getX())[out.size()] / (1 - rate) : 0);
  });
  bind(op.getResult(), out);
}

void Evaluation::embed(Operation *op) {
  auto forward = dyn_cast<model::EmbedOp>(op);
  Value ids = op->getOperand(forward ? 1 : 0);
  auto table = typeOf(forward ? op->getOperand(0) : op->getResult(0));
  int64_t hidden = table.getDimSize(1);
  Numbers out(typeOf(op->getResult(0)).getNumElements(), 0);
  for (size_t token = 0; token < of(ids).size(); ++token)
    for (int64_t h = 0; h < hidden; ++h) {
      int64_t row = static_cast<int64_t>(of(ids)[token]) * hidden + h, column = token * hidden + h;
      if (forward)
        out[column] = of(op->getOperand(0))[row];
      else
        out[row] += of(op->getOperand(1))[column];
    }
  bind(op->getResult(0), out);
}

void Evaluation::run(Operation *op) {
  if (auto constant = dyn_cast<model::ConstantOp>(op))
    return bind(constant.getResult(), {constant.getValue().convertToDouble()});
  if (auto scalar = dyn_cast<model::ScalarOp>(op))
    return bind(scalar.getResult(), {surroundings.slots[codegen::scalarSlot(scalar.getSlot())]});
  if (auto accumulate = dyn_cast<model::AccumulateOp>(op)) {
    Numbers out = of(accumulate.getX());
    for (size_t i = 0; i < out.size() && (accumulate.getAlways() || surroundings.microBatch > 0); ++i)
      out[i] += of(accumulate.getAccumulator())[i];
    return bind(accumulate.getResult(), out);
  }
  if (auto mask = dyn_cast<model::MaskTailOp>(op)) {
    Numbers out = of(mask.getX());
    int64_t columns = typeOf(mask.getX()).getShape().back();
    for (size_t i = 0; i < out.size(); ++i)
      if (i % columns >= mask.getValid())
        out[i] = mask.getFill().convertToDouble();
    return bind(mask.getResult(), out);
  }
  if (auto norm = dyn_cast<model::SquaredNormOp>(op)) {
    double sum = 0;
    for (double x : of(norm.getX()))
      sum += x * x;
    return bind(norm.getResult(), {sum * norm.getWeight().convertToDouble()});
  }
  if (auto elementwiseOp = dyn_cast<ElementwiseOp>(op))
    return elementwise(elementwiseOp);
  if (isa<model::ReduceSumOp, model::ReduceMaxOp>(op))
    return reduce(op);
  if (auto contractOp = dyn_cast<model::ContractOp>(op))
    return contract(contractOp);
  if (isa<model::PickOp, model::PickGradOp>(op))
    return pick(op);
  if (auto dropoutOp = dyn_cast<model::DropoutOp>(op))
    return dropout(dropoutOp);
  if (isa<model::EmbedOp, model::EmbedGradOp>(op))
    return embed(op);
  llvm::report_fatal_error("the reference does not know this op");
}

} // namespace

std::vector<Numbers> evaluate(func::FuncOp function, const std::vector<Numbers> &arguments,
                              const Surroundings &surroundings) {
  Evaluation evaluation(surroundings);
  for (auto [argument, numbers] : llvm::zip_equal(function.getArguments(), arguments))
    evaluation.bind(argument, numbers);
  for (Operation &op : function.getBody().front().without_terminator())
    evaluation.run(&op);
  std::vector<Numbers> results;
  for (Value value : function.getBody().front().getTerminator()->getOperands())
    results.push_back(evaluation.of(value));
  return results;
}

} // namespace espalier::test
