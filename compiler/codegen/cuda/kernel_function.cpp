#include "compiler/codegen/cuda/kernel_function.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

constexpr const char *sharedSymbol = "block_memory";

/// Returns the type used for memory accesses: integers for 16-bit floats.
Type storageType(Type element) {
  return element.isBF16() || element.isF16() ? IntegerType::get(element.getContext(), 16) : element;
}

} // namespace

KernelFunction::KernelFunction(ImplicitLocOpBuilder &builder, StringRef symbol, unsigned buffers, unsigned scalars,
                               exec::GeometryAttr geometry, const rt::KernelSignature *row)
    : Arithmetic(builder), geometry(geometry), buffers(buffers), scalars(scalars), row(row) {
  MLIRContext *context = b.getContext();
  SmallVector<Type> types(buffers, LLVM::LLVMPointerType::get(context, 1));
  types.append(scalars + 1, b.getI64Type());
  function = b.create<LLVM::LLVMFuncOp>(symbol, LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), types));
  function->setAttr("nvvm.kernel", b.getUnitAttr());
  function->setAttr("nvvm.maxntid", b.getDenseI32ArrayAttr({static_cast<int32_t>(geometry.getThreads())}));
  // Without this, ptxas reserves registers for more than one block and spills.
  function->setAttr("nvvm.minctasm", b.getI32IntegerAttr(1));
  function.setPassthroughAttr(b.getArrayAttr({b.getStringAttr("nounwind"), b.getStringAttr("no-builtins")}));
  outside = b.saveInsertionPoint();
  b.setInsertionPointToStart(function.addEntryBlock(b));
}

void KernelFunction::finish() {
  b.create<LLVM::ReturnOp>(ValueRange());
  b.restoreInsertionPoint(outside);
}

Value KernelFunction::buffer(unsigned index) { return function.getArgument(index); }
Value KernelFunction::scalar(unsigned index) { return function.getArgument(buffers + index); }

Value KernelFunction::buffer(StringRef operand, size_t occurrence) {
  std::vector<const rt::OperandSignature *> operands = rt::operandsOf(*row, buffers);
  for (unsigned index = 0; index < operands.size(); ++index)
    if (operands[index]->name == operand && occurrence-- == 0)
      return buffer(index);
  llvm::report_fatal_error(Twine("kernel ") + row->name + " has no operand " + operand);
}

Value KernelFunction::scalar(StringRef name) {
  std::optional<size_t> index = row->findScalar(name.str());
  if (!index || *index >= scalars)
    llvm::report_fatal_error(Twine("kernel ") + row->name + " has no scalar " + name);
  return scalar(static_cast<unsigned>(*index));
}

Value KernelFunction::extent() { return function.getArgument(buffers + scalars); }

Value KernelFunction::atBegin(Value &known, llvm::function_ref<Value()> build) {
  if (known)
    return known;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&function.getBody().front());
  return known = build();
}

Value KernelFunction::shared() {
  return atBegin(sharedBase, [&]() -> Value {
    auto module = function->getParentOfType<ModuleOp>();
    auto memory = module.lookupSymbol<LLVM::GlobalOp>(sharedSymbol);
    if (!memory) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(module.getBody());
      memory = b.create<LLVM::GlobalOp>(LLVM::LLVMArrayType::get(b.getI8Type(), 0), /*isConstant=*/false,
                                        LLVM::Linkage::External, sharedSymbol, Attribute(), /*alignment=*/16,
                                        /*addrSpace=*/3);
    }
    return b.create<LLVM::AddressOfOp>(memory);
  });
}

Value KernelFunction::threadIndex() {
  return atBegin(thread, [&] { return intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", b.getI32Type(), {}); });
}

Value KernelFunction::laneIndex() {
  Value index = threadIndex();
  return b.create<arith::AndIOp>(index, integer(31));
}

Value KernelFunction::warpIndex() {
  Value index = threadIndex();
  return b.create<arith::ShRUIOp>(index, integer(5));
}

Value KernelFunction::blockX() {
  return atBegin(x, [&] { return intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", b.getI32Type(), {}); });
}

Value KernelFunction::blockY() {
  return atBegin(y, [&] { return intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.y", b.getI32Type(), {}); });
}

Value KernelFunction::blockBegin() {
  Value index = blockX();
  return b.create<arith::MulIOp>(b.create<arith::ExtUIOp>(b.getI64Type(), index),
                                 integer(geometry.getExtentPerBlock(), 64));
}

Value KernelFunction::blockEnd() {
  return b.create<arith::MinSIOp>(extent(),
                                  b.create<arith::AddIOp>(blockBegin(), integer(geometry.getExtentPerBlock(), 64)));
}

void KernelFunction::barrier() { intrinsic("llvm.nvvm.barrier0", {}, {}); }

Value KernelFunction::shuffleXor(Value x, int mask) {
  const char *name = x.getType().isF32() ? "llvm.nvvm.shfl.sync.bfly.f32" : "llvm.nvvm.shfl.sync.bfly.i32";
  return intrinsic(name, x.getType(), {integer(-1), x, integer(mask), integer(31)});
}

Value KernelFunction::shuffleFrom(Value x, Value lane) {
  const char *name = x.getType().isF32() ? "llvm.nvvm.shfl.sync.idx.f32" : "llvm.nvvm.shfl.sync.idx.i32";
  return intrinsic(name, x.getType(), {integer(-1), x, lane, integer(31)});
}

Value KernelFunction::ballot(Value condition) {
  return intrinsic("llvm.nvvm.vote.ballot.sync", b.getI32Type(), {integer(-1), condition});
}

Value KernelFunction::countOnes(Value bits) { return b.create<LLVM::CtPopOp>(bits); }

Value KernelFunction::reduceWarp(Value x, Reduction reduction, int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    Value other = shuffleXor(x, mask);
    x = reduction == Reduction::Add ? add(x, other) : Value(b.create<arith::MaximumFOp>(x, other));
  }
  return x;
}

Value KernelFunction::reduceWarps(Value x, Reduction reduction, int warps, Value scratch) {
  x = reduceWarp(x, reduction);
  if (warps == 1)
    return x;
  // Every lane stores the same number to its warp's slot, so that no thread diverges.
  store(x, scratch, warpIndex(), b.getF32Type());
  barrier();
  if (warps < geometry.getThreads() / 32) {
    Value first = b.create<arith::RemUIOp>(warpIndex(), integer(warps));
    scratch = address(scratch, b.create<arith::SubIOp>(warpIndex(), first), b.getF32Type());
  }
  // Groups of lanes each load the numbers of all warps, so every lane ends with the whole sum.
  auto group = static_cast<int>(llvm::PowerOf2Ceil(warps));
  Value place = b.create<arith::AndIOp>(laneIndex(), integer(group - 1));
  if (group == warps)
    return reduceWarp(load(scratch, place, b.getF32Type()), reduction, group);
  Value isWarp = b.create<arith::CmpIOp>(arith::CmpIPredicate::ult, place, integer(warps));
  x = load(scratch, b.create<arith::SelectOp>(isWarp, place, integer(0)), b.getF32Type());
  Value neutral = number(reduction == Reduction::Add ? 0 : -std::numeric_limits<double>::infinity());
  return reduceWarp(b.create<arith::SelectOp>(isWarp, x, neutral), reduction, group);
}

Value KernelFunction::address(Value base, Value index, Type element) {
  return b.create<LLVM::GEPOp>(base.getType(), storageType(element), base, ValueRange{index});
}

Value KernelFunction::load(Value base, Value index, Type element) {
  Value loaded =
      b.create<LLVM::LoadOp>(storageType(element), address(base, index, element), element.getIntOrFloatBitWidth() / 8);
  return element.isInteger() ? loaded : fromBits(loaded, element);
}

void KernelFunction::store(Value x, Value base, Value index, Type element) {
  Value bits = element.isInteger() ? x : toBits(x, element);
  b.create<LLVM::StoreOp>(bits, address(base, index, element), element.getIntOrFloatBitWidth() / 8);
}

Value KernelFunction::loadWords(Value address, int words) {
  Type type = words == 1 ? Type(b.getI32Type()) : VectorType::get({words}, b.getI32Type());
  return b.create<LLVM::LoadOp>(type, address, 4 * words);
}

void KernelFunction::storeWords(Value words, Value address) {
  auto vector = dyn_cast<VectorType>(words.getType());
  b.create<LLVM::StoreOp>(words, address, 4 * (vector ? vector.getDimSize(0) : 1));
}

} // namespace espalier::codegen::cuda
