#include "compiler/codegen/cuda/arithmetic.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <numbers>

using namespace mlir;

namespace espalier::codegen::cuda {

Value Arithmetic::exp2(Value x) { return intrinsic("llvm.nvvm.ex2.approx.ftz.f", b.getF32Type(), x); }
Value Arithmetic::log2(Value x) { return intrinsic("llvm.nvvm.lg2.approx.f", b.getF32Type(), x); }
Value Arithmetic::reciprocal(Value x) { return intrinsic("llvm.nvvm.rcp.approx.ftz.f", b.getF32Type(), x); }
Value Arithmetic::rsqrt(Value x) { return intrinsic("llvm.nvvm.rsqrt.approx.f", b.getF32Type(), x); }
Value Arithmetic::sqrt(Value x) { return intrinsic("llvm.nvvm.sqrt.approx.f", b.getF32Type(), x); }
Value Arithmetic::divide(Value x, Value y) {
  return assembly("div.full.f32 $0, $1, $2;", "=f,f,f", b.getF32Type(), {x, y});
}
Value Arithmetic::exp(Value x) { return exp2(mul(x, number(std::numbers::log2e))); }
Value Arithmetic::log(Value x) { return mul(log2(x), number(std::numbers::ln2)); }
Value Arithmetic::fma(Value a, Value x, Value c) { return b.create<LLVM::FMAOp>(a, x, c); }
Value Arithmetic::add(Value a, Value x) { return b.create<arith::AddFOp>(a, x); }
Value Arithmetic::sub(Value a, Value x) { return b.create<arith::SubFOp>(a, x); }
Value Arithmetic::mul(Value a, Value x) { return b.create<arith::MulFOp>(a, x); }
Value Arithmetic::max(Value a, Value x) { return b.create<arith::MaxNumFOp>(a, x); }
Value Arithmetic::min(Value a, Value x) { return b.create<arith::MinNumFOp>(a, x); }

Value Arithmetic::packPair(Value low, Value high, Type element) {
  const char *name = element.isBF16() ? "llvm.nvvm.ff2bf16x2.rn" : "llvm.nvvm.ff2f16x2.rn";
  Value pair = intrinsic(name, VectorType::get({2}, element), {high, low});
  return b.create<LLVM::BitcastOp>(b.getI32Type(), pair);
}

std::pair<Value, Value> Arithmetic::unpackPair(Value bits, Type element) {
  if (element.isBF16()) { // the upper half of an f32
    Value low = b.create<arith::ShLIOp>(bits, integer(16));
    Value high = b.create<arith::AndIOp>(bits, integer(0xffff0000));
    return {b.create<arith::BitcastOp>(b.getF32Type(), low), b.create<arith::BitcastOp>(b.getF32Type(), high)};
  }
  auto half = [&](Value word) { return fromBits(b.create<arith::TruncIOp>(b.getI16Type(), word), element); };
  return {half(bits), half(b.create<arith::ShRUIOp>(bits, integer(16)))};
}

Value Arithmetic::toBits(Value x, Type element) {
  if (element.isF32())
    return x;
  if (element.isF16())
    return b.create<arith::BitcastOp>(b.getI16Type(), Value(b.create<arith::TruncFOp>(element, x)));
  return b.create<LLVM::BitcastOp>(b.getI16Type(), intrinsic("llvm.nvvm.f2bf16.rn", element, x));
}

Value Arithmetic::fromBits(Value bits, Type element) {
  if (element.isF32())
    return bits;
  if (element.isF16())
    return b.create<arith::ExtFOp>(b.getF32Type(), Value(b.create<arith::BitcastOp>(element, bits)));
  Value word = b.create<arith::ShLIOp>(b.create<arith::ExtUIOp>(b.getI32Type(), bits), integer(16));
  return b.create<arith::BitcastOp>(b.getF32Type(), word);
}

Value Arithmetic::extract(Value vector, int index) { return b.create<LLVM::ExtractElementOp>(vector, integer(index)); }

Value Arithmetic::insert(Value x, Value vector, int index) {
  return b.create<LLVM::InsertElementOp>(vector, x, integer(index));
}

Value Arithmetic::integer(int64_t value, unsigned bits) {
  APInt number(bits, static_cast<uint64_t>(value), /*isSigned=*/true);
  return b.create<arith::ConstantOp>(b.getIntegerAttr(b.getIntegerType(bits), number));
}

Value Arithmetic::number(double value) { return b.create<arith::ConstantOp>(b.getF32FloatAttr(value)); }

Value Arithmetic::intrinsic(StringRef name, Type result, ValueRange arguments) {
  auto call = b.create<LLVM::CallIntrinsicOp>(result, b.getStringAttr(name), arguments);
  return result ? call.getResults() : Value();
}

Value Arithmetic::assembly(StringRef text, StringRef constraints, Type result, ValueRange arguments,
                           bool hasSideEffects) {
  auto op = b.create<LLVM::InlineAsmOp>(result ? TypeRange(result) : TypeRange(), arguments, text, constraints,
                                        hasSideEffects, /*is_align_stack=*/false, LLVM::AsmDialectAttr(), ArrayAttr());
  return result ? op.getResult(0) : Value();
}

} // namespace espalier::codegen::cuda
