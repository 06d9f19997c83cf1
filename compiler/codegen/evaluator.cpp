// Generates the values of a fused body at the current row and columns, op by op.
#include "compiler/codegen/evaluator.h"

#include "dialects/model/dialect.h"
#include "format/abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;

namespace espalier::codegen {

static Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }

KernelArguments KernelArguments::read(const KernelShape &shape, llvm::function_ref<Value(unsigned)> buffer,
                                      llvm::function_ref<Value(unsigned)> scalar) {
  KernelArguments arguments;
  unsigned next = 0;
  for (unsigned i = 0; i < shape.operands.size(); ++i)
    arguments.operands.push_back(shape.isAccumulator(i) ? Value() : buffer(next++));
  for (unsigned i = 0; i < shape.slots.size(); ++i)
    arguments.slots.push_back(buffer(next++));
  for (unsigned i = 0; i < shape.outputs.size(); ++i)
    arguments.outputs.push_back(buffer(next++));
  for (const Accumulation &sum : shape.accumulations)
    arguments.operands[sum.operand] = arguments.outputs[sum.output];
  for (unsigned i = 0; i < shape.scalars.size(); ++i)
    arguments.scalars.push_back(scalar(i));
  return arguments;
}

void Evaluator::emitScalars() {
  auto &b = lanes.b;
  if (const int64_t *slot = llvm::find(shape.slots, rt::Step); slot != shape.slots.end())
    step = lanes.load(arguments.slots[slot - shape.slots.begin()], lanes.integer(0), b.getI32Type(), 1);
  for (auto [index, argument] : llvm::enumerate(shape.body->getArguments()))
    if (shape.levels.lookup(argument) == Level::Scalar)
      scalarValues[argument] = lanes.load(arguments.operands[index], lanes.integer(0), elementOf(argument), 1);
  for (Operation &op : shape.body->without_terminator()) {
    Value result = op.getResult(0);
    if (shape.levels.lookup(result) != Level::Scalar)
      continue;
    if (auto constant = dyn_cast<model::ConstantOp>(op)) {
      scalarValues[result] = lanes.number(constant.getValue().convertToDouble());
    } else if (auto slot = dyn_cast<model::ScalarOp>(op)) {
      auto index = llvm::find(shape.slots, scalarSlot(slot.getSlot())) - shape.slots.begin();
      scalarValues[result] = lanes.load(arguments.slots[index], lanes.integer(0), b.getF32Type(), 1);
    } else {
      SmallVector<Value> operandValues;
      for (Value operand : op.getOperands())
        operandValues.push_back(scalarValues.lookup(operand));
      scalarValues[result] = compute(&op, operandValues, 1);
    }
  }
}

/// Returns the sum of ((row / divisor) % modulus) * stride over the terms.
Value Evaluator::rowOffset(ArrayRef<Term> terms, unsigned firstScalar) {
  auto &b = lanes.b;
  Value sum = lanes.integer(0);
  for (unsigned i = 0; i < terms.size(); ++i) {
    Value quotient = lanes.divide(currentRow, scalar(firstScalar + 3 * i));
    Value index = lanes.remainder(quotient, scalar(firstScalar + 3 * i + 1));
    sum = b.create<arith::AddIOp>(sum, b.create<arith::MulIOp>(index, scalar(firstScalar + 3 * i + 2)));
  }
  return sum;
}

Value Evaluator::zigzagOffset(const DropoutScalars::Zigzag &zigzag) {
  auto &b = lanes.b;
  Value index = lanes.remainder(lanes.divide(currentRow, scalar(zigzag.stepRows)), scalar(zigzag.stepSize));
  Value chunk = lanes.divide(b.create<arith::AddIOp>(index, scalar(zigzag.first)), scalar(zigzag.chunk));
  return b.create<arith::MulIOp>(chunk, scalar(zigzag.distance));
}

Value Evaluator::densePosition() {
  auto &b = lanes.b;
  return b.create<arith::AddIOp>(b.create<arith::MulIOp>(currentRow, scalar(0)), lanes.fromColumn(cursor.column));
}

void Evaluator::setRow(Value row) {
  currentRow = row;
  rowValues.clear();
  fullValues.clear();
  for (auto [index, argument] : llvm::enumerate(shape.body->getArguments()))
    if (shape.levels.lookup(argument) == Level::Row)
      rowValues[argument] = loadOperand(index, /*isFull=*/false);
}

void Evaluator::setCursor(Cursor next) {
  cursor = next;
  fullValues.clear();
}

Value Evaluator::once(Value value) {
  if (Value found = scalarValues.lookup(value))
    return found;
  if (Value found = rowValues.lookup(value))
    return found;
  Operation *op = value.getDefiningOp();
  Value result;
  if (isa<model::PickOp>(op)) {
    result = pick(op);
  } else {
    SmallVector<Value> operandValues;
    for (Value operand : op->getOperands())
      operandValues.push_back(once(operand));
    result = compute(op, operandValues, 1);
  }
  return rowValues[value] = result;
}

Value Evaluator::loadOperand(unsigned index, bool isFull) {
  auto &b = lanes.b;
  const Access &access = shape.operands[index];
  Value position;
  if (access.isDense && shape.kind != "flat")
    position = isFull ? b.create<arith::MulIOp>(currentRow, scalar(0)) : currentRow;
  else if (!access.terms.empty())
    position = rowOffset(access.terms, shape.operandScalar[index]);
  if (isFull) {
    Value column = lanes.fromColumn(cursor.column);
    position = position ? b.create<arith::AddIOp>(position, column) : column;
  }
  return lanes.load(arguments.operands[index], position, elementOf(shape.body->getArgument(index)),
                    isFull ? cursor.width : 1);
}

Value Evaluator::at(Value value) {
  if (shape.levels.lookup(value) != Level::Full)
    return lanes.splat(once(value), cursor.width);
  if (Value found = fullValues.lookup(value))
    return found;
  Value result;
  auto found = stored.find(value);
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    result = loadOperand(argument.getArgNumber(), /*isFull=*/true);
  } else if (found != stored.end() && shape.passes.lookup(value) < cursor.pass) {
    result = lanes.load(arguments.outputs[found->second], densePosition(), elementOf(value), cursor.width);
  } else {
    Operation *op = value.getDefiningOp();
    SmallVector<Value> operandValues;
    if (!isa<model::PickGradOp>(op))
      for (Value operand : op->getOperands())
        operandValues.push_back(at(operand));
    result = compute(op, operandValues, cursor.width);
  }
  return fullValues[value] = result;
}

Value Evaluator::compute(Operation *op, ArrayRef<Value> inputs, int width) {
  SmallVector<Value> numbers;
  for (Value input : inputs)
    numbers.push_back(lanes.asFloat(input));
  Value result;
  if (auto elementwise = dyn_cast<ElementwiseOp>(op))
    result = elementwise.emit(lanes.b, lanes.b.getLoc(), numbers);
  else if (isa<model::AccumulateOp>(op))
    result = accumulate(op, numbers, width);
  else if (isa<model::DropoutOp>(op))
    result = dropout(op, numbers[0], width);
  else if (isa<model::MaskTailOp>(op))
    result = maskTail(op, numbers[0], width);
  else if (isa<model::PickGradOp>(op))
    result = pickGrad(op, width);
  // A stored value is rounded to its storage type, so that this kernel continues with the value that others read.
  bool isStored = llvm::is_contained(shape.body->getTerminator()->getOperands(), op->getResult(0));
  return isStored ? lanes.round(result, elementOf(op->getResult(0))) : result;
}

/// The first term overwrites the sum (beta = 0), unless the op always adds. Uses a select, because the old contents may
/// be NaN.
Value Evaluator::accumulate(Operation *op, ArrayRef<Value> inputs, int width) {
  auto &b = lanes.b;
  Value sum = b.create<arith::AddFOp>(inputs[0], inputs[1]);
  if (cast<model::AccumulateOp>(op).getAlways())
    return sum;
  Value isFirst =
      b.create<arith::CmpIOp>(arith::CmpIPredicate::ne, scalar(shape.scalarOf.lookup(op)), lanes.integer(0));
  return b.create<arith::SelectOp>(lanes.splat(isFirst, width), inputs[1], sum);
}

/// Computes randomBits of format/abi.h on lanes.
Value Evaluator::dropout(Operation *op, Value x, int width) {
  auto &b = lanes.b;
  const DropoutScalars &scalars = shape.dropouts.find(op)->second;
  Type word = lanes.type(b.getI32Type(), width);
  auto low = [&](Value value) -> Value { return b.create<arith::TruncIOp>(b.getI32Type(), value); };
  auto times = [&](Value value, uint32_t factor) -> Value {
    return b.create<arith::MulIOp>(value, lanes.integer(static_cast<int32_t>(factor), 1, 32));
  };
  Value key = b.create<arith::AddIOp>(
      b.create<arith::AddIOp>(times(low(scalar(scalars.seed)), 0x9E3779B9u), times(step, 0x85EBCA6Bu)),
      times(low(scalar(scalars.stream)), 0xC2B2AE35u));
  Value sample =
      b.create<arith::AddIOp>(scalar(scalars.firstSample), lanes.divide(currentRow, scalar(scalars.rowsPerSample)));
  Value start = b.create<arith::AddIOp>(scalar(scalars.firstElement), rowOffset(scalars.elements, scalars.terms));
  if (scalars.zigzag)
    start = b.create<arith::AddIOp>(start, zigzagOffset(*scalars.zigzag));
  Value element = lanes.iota(b.create<arith::AddIOp>(start, lanes.fromColumn(cursor.column)), width);
  Value counter0 = b.create<arith::TruncIOp>(word, element);
  Value high = b.create<arith::TruncIOp>(word, b.create<arith::ShRUIOp>(element, lanes.integer(32, width)));
  Value counter1 = b.create<arith::XOrIOp>(high, lanes.splat(times(low(sample), 0x27D4EB2Fu), width));
  for (int round = 0; round < 7; ++round) {
    auto [lower, upper] = lanes.multiplyWide(counter0, 0xD256D193u);
    counter0 = b.create<arith::XOrIOp>(b.create<arith::XOrIOp>(upper, lanes.splat(key, width)), counter1);
    counter1 = lower;
    key = b.create<arith::AddIOp>(key, lanes.integer(static_cast<int32_t>(0x9E3779B9u), 1, 32));
  }
  double rate = cast<model::DropoutOp>(op).getRate().convertToDouble();
  Value threshold = lanes.integer(static_cast<int32_t>(rt::dropoutThreshold(rate)), width, 32);
  Value isKept = b.create<arith::CmpIOp>(arith::CmpIPredicate::uge, counter0, threshold);
  Value scaled = b.create<arith::MulFOp>(x, lanes.number(1 / (1 - rate), width));
  return b.create<arith::SelectOp>(isKept, scaled, lanes.number(0, width));
}

Value Evaluator::maskTail(Operation *op, Value x, int width) {
  auto &b = lanes.b;
  Value valid = lanes.splat(lanes.toColumn(scalar(shape.scalarOf.lookup(op))), width);
  Value isValid = b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, lanes.iota(cursor.column, width), valid);
  double fill = cast<model::MaskTailOp>(op).getFill().convertToDouble();
  return b.create<arith::SelectOp>(isValid, x, lanes.number(fill, width));
}

/// Returns the column of the row's label, relative to the rank's first column.
static Value labelColumn(Lanes &lanes, Value label, Value firstColumn) {
  auto &b = lanes.b;
  return b.create<arith::SubIOp>(b.create<arith::ExtSIOp>(b.getI64Type(), label), firstColumn);
}

Value Evaluator::pickGrad(Operation *op, int width) {
  auto &b = lanes.b;
  Value label = labelColumn(lanes, once(op->getOperand(0)), scalar(shape.scalarOf.lookup(op)));
  Value isLabel = b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, lanes.iota(cursor.column, width),
                                          lanes.splat(lanes.toColumn(label), width));
  Value cotangent = lanes.splat(lanes.asFloat(once(op->getOperand(1))), width);
  return b.create<arith::SelectOp>(isLabel, cotangent, lanes.number(0, width));
}

/// If the label is outside of the rank's columns, reads column 0 and ignores the result.
Value Evaluator::pick(Operation *op) {
  auto &b = lanes.b;
  Value label = labelColumn(lanes, once(op->getOperand(1)), scalar(shape.scalarOf.lookup(op)));
  Value isHeld = b.create<arith::CmpIOp>(arith::CmpIPredicate::ult, label, scalar(0));
  Value column = lanes.toColumn(b.create<arith::SelectOp>(isHeld, label, lanes.integer(0)));
  setCursor({column, 1, shape.passes.lookup(op->getResult(0))});
  Value picked = lanes.asFloat(at(op->getOperand(0)));
  return b.create<arith::SelectOp>(isHeld, picked, lanes.number(0));
}

void Evaluator::storeOutput(unsigned index, Value value) {
  const Access &access = shape.outputs[index];
  Value position;
  if (!access.columns)
    position = access.isDense ? currentRow : lanes.integer(0);
  else if (access.isDense && shape.kind != "flat")
    position = densePosition();
  else
    position = lanes.fromColumn(cursor.column);
  lanes.store(value, arguments.outputs[index], position, elementOf(shape.body->getTerminator()->getOperand(index)));
}

Value Evaluator::termOf(unsigned index) {
  return lanes.asFloat(at(shape.body->getTerminator()->getOperand(index).getDefiningOp()->getOperand(0)));
}

PassWork workOf(const KernelShape &shape, int pass) {
  PassWork work;
  for (Operation &op : shape.body->without_terminator())
    if (reducesTrailing(&op) && shape.passes.lookup(op.getOperand(0)) == pass)
      work.reductions.push_back(&op);
  for (auto [index, value] : llvm::enumerate(shape.body->getTerminator()->getOperands()))
    if (shape.levels.lookup(value) == Level::Full && shape.passes.lookup(value) == pass)
      (shape.isSummed(index) ? work.sums : work.outputs).push_back(index);
  return work;
}

Value combine(Lanes &lanes, Operation *reduction, Value a, Value x) {
  if (isa<model::ReduceSumOp>(reduction))
    return lanes.b.create<arith::AddFOp>(a, x);
  return lanes.b.create<arith::MaximumFOp>(a, x);
}

Value neutral(Lanes &lanes, Operation *reduction, int width) {
  return lanes.number(isa<model::ReduceSumOp>(reduction) ? 0.0 : -std::numeric_limits<double>::infinity(), width);
}

Value combineLanes(Lanes &lanes, Operation *reduction, Value vector) {
  auto &b = lanes.b;
  for (int width = widthOf(vector); width > 1; width /= 2) {
    SmallVector<int32_t> low, high;
    for (int i = 0; i < width / 2; ++i) {
      low.push_back(i);
      high.push_back(width / 2 + i);
    }
    Value a = b.create<LLVM::ShuffleVectorOp>(vector, vector, low);
    Value x = b.create<LLVM::ShuffleVectorOp>(vector, vector, high);
    vector = combine(lanes, reduction, a, x);
  }
  return isa<VectorType>(vector.getType()) ? b.create<LLVM::ExtractElementOp>(vector, lanes.integer(0)) : vector;
}

void emitRowValues(Evaluator &evaluator, const KernelShape &shape, int pass) {
  for (Operation &op : shape.body->without_terminator()) {
    Value result = op.getResult(0);
    if (shape.levels.lookup(result) == Level::Row && shape.passes.lookup(result) == pass)
      (void)evaluator.once(result);
  }
}

void storeRowValues(Evaluator &evaluator, const KernelShape &shape, int pass) {
  for (auto [index, value] : llvm::enumerate(shape.body->getTerminator()->getOperands()))
    if (shape.levels.lookup(value) != Level::Full && shape.passes.lookup(value) == pass)
      evaluator.storeOutput(index, evaluator.once(value));
}

} // namespace espalier::codegen
