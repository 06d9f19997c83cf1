// Converts storage types to f32 lanes and back. Uses integer arithmetic if the instruction set level has no
// instruction.
#include "compiler/codegen/cpu/kernel_builder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace espalier::codegen {

/// Returns the type of memory accesses. 16-bit floats are accessed as integers.
static Type storageType(Type element) {
  return element.isBF16() || element.isF16() ? IntegerType::get(element.getContext(), 16) : element;
}

Value CpuLanes::address(Value base, Value index, Type element) {
  return b.create<LLVM::GEPOp>(base.getType(), storageType(element), base, ValueRange{index});
}

Value CpuLanes::load(Value base, Value index, Type element, int width) {
  unsigned bytes = element.getIntOrFloatBitWidth() / 8;
  Value loaded = b.create<LLVM::LoadOp>(type(storageType(element), width), address(base, index, element), bytes);
  return element.isF32() || element.isInteger() ? loaded : fromBits(loaded, element);
}

void CpuLanes::store(Value value, Value base, Value index, Type element) {
  if (element.isInteger())
    value = b.create<arith::FPToSIOp>(type(element, widthOf(value)), value);
  else if (!element.isF32())
    value = bitsOf(value, element);
  b.create<LLVM::StoreOp>(value, address(base, index, element), element.getIntOrFloatBitWidth() / 8);
}

Value CpuLanes::round(Value value, Type element) {
  return element.isBF16() || element.isF16() ? fromBits(bitsOf(value, element), element) : value;
}

/// Rounds to nearest even. NaNs become quiet.
Value CpuLanes::bitsOf(Value value, Type element) {
  int width = widthOf(value);
  Type half = type(b.getIntegerType(16), width), word = type(b.getI32Type(), width);
  if (element.isF16() && !target.hasHalf)
    return halfBits(value);
  if (element.isF16())
    return b.create<arith::BitcastOp>(half, Value(b.create<arith::TruncFOp>(type(element, width), value)));
  auto constant = [&](int64_t x) { return integer(x, width, 32); };
  Value bits = b.create<arith::BitcastOp>(word, value);
  Value high = b.create<arith::ShRUIOp>(bits, constant(16));
  Value odd = b.create<arith::AndIOp>(high, constant(1));
  Value rounded = b.create<arith::AddIOp>(bits, b.create<arith::AddIOp>(odd, constant(0x7fff)));
  Value magnitude = b.create<arith::AndIOp>(bits, constant(0x7fffffff));
  Value isNan = b.create<arith::CmpIOp>(arith::CmpIPredicate::sgt, magnitude, constant(0x7f800000));
  Value result = b.create<arith::SelectOp>(isNan, b.create<arith::OrIOp>(high, constant(0x40)),
                                           b.create<arith::ShRUIOp>(rounded, constant(16)));
  return b.create<arith::TruncIOp>(half, result);
}

Value CpuLanes::fromBits(Value bits, Type element) {
  int width = widthOf(bits);
  if (element.isF16() && !target.hasHalf)
    return fromHalfBits(bits);
  if (element.isF16())
    return b.create<arith::ExtFOp>(type(b.getF32Type(), width),
                                   Value(b.create<arith::BitcastOp>(type(element, width), bits)));
  Value word = b.create<arith::ExtUIOp>(type(b.getI32Type(), width), bits);
  Value shifted = b.create<arith::ShLIOp>(word, integer(16, width, 32));
  return b.create<arith::BitcastOp>(type(b.getF32Type(), width), shifted);
}

/// Converts f32 to f16, rounding to nearest even. Subnormal results are rounded by an addition that aligns their last
/// bit. Other results are rounded by adding half of the last kept bit.
Value CpuLanes::halfBits(Value value) {
  int width = widthOf(value);
  Type word = type(b.getI32Type(), width), number = type(b.getF32Type(), width);
  auto constant = [&](int64_t x) { return integer(x, width, 32); };
  auto select = [&](arith::CmpIPredicate predicate, Value x, int64_t bound, Value yes, Value no) -> Value {
    return b.create<arith::SelectOp>(b.create<arith::CmpIOp>(predicate, x, constant(bound)), yes, no);
  };
  Value bits = b.create<arith::BitcastOp>(word, value);
  Value magnitude = b.create<arith::AndIOp>(bits, constant(0x7fffffff));
  Value sign = b.create<arith::ShRUIOp>(b.create<arith::XOrIOp>(bits, magnitude), constant(16));
  Value special = select(arith::CmpIPredicate::sgt, magnitude, 0x7f800000, constant(0x7e00), constant(0x7c00));
  Value magic = constant((127 - 15 + 23 - 10 + 1) << 23);
  Value aligned =
      b.create<arith::AddFOp>(b.create<arith::BitcastOp>(number, magnitude), b.create<arith::BitcastOp>(number, magic));
  Value subnormal = b.create<arith::SubIOp>(b.create<arith::BitcastOp>(word, aligned), magic);
  Value odd = b.create<arith::AndIOp>(b.create<arith::ShRUIOp>(magnitude, constant(13)), constant(1));
  Value biased = b.create<arith::AddIOp>(magnitude, constant(((15 - 127) << 23) + 0xfff));
  Value normal = b.create<arith::ShRUIOp>(b.create<arith::AddIOp>(biased, odd), constant(13));
  Value finite = select(arith::CmpIPredicate::slt, magnitude, 113 << 23, subnormal, normal);
  Value result = select(arith::CmpIPredicate::sge, magnitude, (127 + 16) << 23, special, finite);
  return b.create<arith::TruncIOp>(type(b.getIntegerType(16), width), b.create<arith::OrIOp>(result, sign));
}

/// Converts f16 to f32 exactly. The exponent is rebiased, and subnormals are normalized by a subtraction.
Value CpuLanes::fromHalfBits(Value bits) {
  int width = widthOf(bits);
  Type word = type(b.getI32Type(), width), number = type(b.getF32Type(), width);
  auto constant = [&](int64_t x) { return integer(x, width, 32); };
  Value wide = b.create<arith::ExtUIOp>(word, bits);
  Value magnitude = b.create<arith::ShLIOp>(b.create<arith::AndIOp>(wide, constant(0x7fff)), constant(13));
  Value sign = b.create<arith::ShLIOp>(b.create<arith::AndIOp>(wide, constant(0x8000)), constant(16));
  Value exponent = b.create<arith::AndIOp>(magnitude, constant(0x7c00 << 13));
  Value moved = b.create<arith::AddIOp>(magnitude, constant((127 - 15) << 23));
  Value special = b.create<arith::AddIOp>(moved, constant((128 - 16) << 23));
  Value raised = b.create<arith::AddIOp>(moved, constant(1 << 23));
  Value lowered = b.create<arith::SubFOp>(b.create<arith::BitcastOp>(number, raised),
                                          b.create<arith::BitcastOp>(number, constant(113 << 23)));
  auto isExponent = [&](int64_t x) { return b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, exponent, constant(x)); };
  Value finite = b.create<arith::SelectOp>(isExponent(0), b.create<arith::BitcastOp>(word, lowered), moved);
  Value result = b.create<arith::SelectOp>(isExponent(0x7c00 << 13), special, finite);
  return b.create<arith::BitcastOp>(number, b.create<arith::OrIOp>(result, sign));
}

} // namespace espalier::codegen
