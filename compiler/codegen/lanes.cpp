#include "compiler/codegen/lanes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace espalier::codegen {

int widthOf(Value value) {
  auto vector = dyn_cast<VectorType>(value.getType());
  return vector ? vector.getDimSize(0) : 1;
}

Type Lanes::type(Type element, int width) const { return width == 1 ? element : VectorType::get({width}, element); }

Value Lanes::integer(int64_t value, int width, unsigned bits) {
  APInt number(bits, static_cast<uint64_t>(value), /*isSigned=*/true);
  Type element = b.getIntegerType(bits);
  if (width == 1)
    return b.create<arith::ConstantOp>(b.getIntegerAttr(element, number));
  return b.create<arith::ConstantOp>(DenseElementsAttr::get(VectorType::get({width}, element), number));
}

Value Lanes::number(double value, int width) {
  if (width == 1)
    return b.create<arith::ConstantOp>(b.getF32FloatAttr(value));
  auto vector = VectorType::get({width}, b.getF32Type());
  return b.create<arith::ConstantOp>(DenseElementsAttr::get(vector, static_cast<float>(value)));
}

Value Lanes::splat(Value scalar, int width) {
  return width == 1 ? scalar : b.create<vector::BroadcastOp>(type(scalar.getType(), width), scalar);
}

Value Lanes::iota(Value first, int width) {
  if (width == 1)
    return first;
  unsigned bits = first.getType().getIntOrFloatBitWidth();
  SmallVector<APInt> steps;
  for (int i = 0; i < width; ++i)
    steps.emplace_back(bits, i);
  Value offsets = b.create<arith::ConstantOp>(DenseElementsAttr::get(VectorType::get({width}, first.getType()), steps));
  return b.create<arith::AddIOp>(splat(first, width), offsets);
}

Value Lanes::asFloat(Value value) {
  if (getElementTypeOrSelf(value).isF32())
    return value;
  return b.create<arith::SIToFPOp>(type(b.getF32Type(), widthOf(value)), value);
}

Value Lanes::toColumn(Value number) {
  return columnBits == 64 ? number : b.create<arith::TruncIOp>(b.getIntegerType(columnBits), number);
}

Value Lanes::fromColumn(Value column) {
  return columnBits == 64 ? column : b.create<arith::ExtUIOp>(b.getI64Type(), column);
}

std::pair<Value, Value> Lanes::multiplyWide(Value x, uint32_t factor) {
  int width = widthOf(x);
  Type word = type(b.getI32Type(), width), wide = type(b.getI64Type(), width);
  Value product = b.create<arith::MulIOp>(b.create<arith::ExtUIOp>(wide, x), integer(factor, width));
  Value high = b.create<arith::TruncIOp>(word, b.create<arith::ShRUIOp>(product, integer(32, width)));
  return {b.create<arith::TruncIOp>(word, product), high};
}

Value Lanes::divide(Value row, Value divisor) {
  if (columnBits == 64)
    return b.create<arith::DivSIOp>(row, divisor);
  return fromColumn(b.create<arith::DivUIOp>(toColumn(row), toColumn(divisor)));
}

Value Lanes::remainder(Value row, Value divisor) {
  if (columnBits == 64)
    return b.create<arith::RemSIOp>(row, divisor);
  return fromColumn(b.create<arith::RemUIOp>(toColumn(row), toColumn(divisor)));
}

} // namespace espalier::codegen
