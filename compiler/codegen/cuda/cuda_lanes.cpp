#include "compiler/codegen/cuda/cuda_lanes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

bool isHalf(Type element) { return element.isBF16() || element.isF16(); }

unsigned alignmentOf(Type element, int width) { return std::min(16u, width * element.getIntOrFloatBitWidth() / 8); }

} // namespace

Value CudaLanes::pack(Value value, Type element) {
  int width = widthOf(value);
  if (!isHalf(element))
    return value;
  if (width == 1)
    return function.toBits(value, element);
  Value words = b.create<LLVM::PoisonOp>(type(b.getI32Type(), width / 2));
  if (width == 2)
    return function.packPair(function.extract(value, 0), function.extract(value, 1), element);
  for (int i = 0; i < width / 2; ++i) {
    Value pair = function.packPair(function.extract(value, 2 * i), function.extract(value, 2 * i + 1), element);
    words = function.insert(pair, words, i);
  }
  return words;
}

Value CudaLanes::unpack(Value words, Type element) {
  if (!isHalf(element))
    return words;
  if (words.getType().isInteger(16))
    return function.fromBits(words, element);
  int width = 2 * widthOf(words);
  Value value = b.create<LLVM::PoisonOp>(type(b.getF32Type(), width));
  for (int i = 0; i < width / 2; ++i) {
    auto [low, high] = function.unpackPair(width == 2 ? words : function.extract(words, i), element);
    value = function.insert(high, function.insert(low, value, 2 * i), 2 * i + 1);
  }
  return value;
}

Value CudaLanes::load(Value base, Value index, Type element, int width) {
  Type stored = isHalf(element) && width > 1 ? type(b.getI32Type(), width / 2)
                : isHalf(element)            ? Type(b.getI16Type())
                                             : type(element, width);
  Value place = function.address(base, index, element);
  return unpack(b.create<LLVM::LoadOp>(stored, place, alignmentOf(element, width)), element);
}

void CudaLanes::store(Value value, Value base, Value index, Type element) {
  int width = widthOf(value);
  if (element.isInteger())
    value = b.create<arith::FPToSIOp>(type(element, width), value);
  Value packed = pack(value, element), place = function.address(base, index, element);
  OpBuilder::InsertionGuard guard(b);
  if (mask)
    b.setInsertionPointToStart(&b.create<scf::IfOp>(mask, /*withElseRegion=*/false).getThenRegion().front());
  b.create<LLVM::StoreOp>(packed, place, alignmentOf(element, width));
}

Value CudaLanes::round(Value value, Type element) {
  return isHalf(element) ? unpack(pack(value, element), element) : value;
}

std::pair<Value, Value> CudaLanes::multiplyWide(Value x, uint32_t factor) {
  int width = widthOf(x);
  Value low = b.create<arith::MulIOp>(x, integer(static_cast<int32_t>(factor), width, 32));
  auto upper = [&](Value word) {
    return function.intrinsic("llvm.nvvm.mulhi.ui", b.getI32Type(), {word, function.integer(factor)});
  };
  if (width == 1)
    return {low, upper(x)};
  Value high = b.create<LLVM::PoisonOp>(x.getType());
  for (int i = 0; i < width; ++i)
    high = function.insert(upper(function.extract(x, i)), high, i);
  return {low, high};
}

} // namespace espalier::codegen::cuda
