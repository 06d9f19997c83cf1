#include "compiler/codegen/cuda/expression.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// Both operands as values of one type.
struct Pair {
  KernelFunction &f;
  Value a, b;

  Pair(const Expr &x, const Expr &y) : f(x.isNumber() ? y.function() : x.function()) {
    Type type = x.isNumber() ? y.type() : x.type();
    a = x.as(f, type);
    b = y.as(f, type);
    assert(a.getType() == b.getType() && "operands of two types");
  }
  bool isFloat() const { return isa<FloatType>(a.getType()); }
};

template <class Integer, class Float> Expr arithmetic(const Expr &x, const Expr &y) {
  Pair p(x, y);
  if (p.isFloat()) {
    auto contract = arith::FastMathFlagsAttr::get(p.f.b.getContext(), arith::FastMathFlags::contract);
    return {p.f, p.f.b.createOrFold<Float>(p.a, p.b, contract)};
  }
  return {p.f, p.f.b.createOrFold<Integer>(p.a, p.b)};
}

template <class Integer> Expr integers(const Expr &x, const Expr &y) {
  Pair p(x, y);
  return {p.f, p.f.b.createOrFold<Integer>(p.a, p.b)};
}

Expr compare(const Expr &x, const Expr &y, arith::CmpIPredicate integer, arith::CmpFPredicate number) {
  Pair p(x, y);
  if (p.isFloat())
    return {p.f, p.f.b.createOrFold<arith::CmpFOp>(number, p.a, p.b)};
  return {p.f, p.f.b.createOrFold<arith::CmpIOp>(integer, p.a, p.b)};
}

} // namespace

Value Expr::as(KernelFunction &f, Type type) const {
  if (value)
    return value;
  if (type.isF64())
    return f.b.create<arith::ConstantOp>(f.b.getF64FloatAttr(number));
  if (isa<FloatType>(type))
    return f.number(number);
  return f.integer(static_cast<int64_t>(number), type.getIntOrFloatBitWidth());
}

Expr operator+(Expr a, Expr b) { return arithmetic<arith::AddIOp, arith::AddFOp>(a, b); }
Expr operator-(Expr a, Expr b) { return arithmetic<arith::SubIOp, arith::SubFOp>(a, b); }
Expr operator*(Expr a, Expr b) { return arithmetic<arith::MulIOp, arith::MulFOp>(a, b); }
Expr operator/(Expr a, Expr b) { return arithmetic<arith::DivUIOp, arith::DivFOp>(a, b); }
Expr operator%(Expr a, Expr b) { return integers<arith::RemUIOp>(a, b); }
Expr operator&(Expr a, Expr b) { return integers<arith::AndIOp>(a, b); }
Expr operator|(Expr a, Expr b) { return integers<arith::OrIOp>(a, b); }
Expr operator^(Expr a, Expr b) { return integers<arith::XOrIOp>(a, b); }
Expr operator<<(Expr a, Expr b) { return integers<arith::ShLIOp>(a, b); }
Expr operator>>(Expr a, Expr b) { return integers<arith::ShRUIOp>(a, b); }
Expr operator<(Expr a, Expr b) { return compare(a, b, arith::CmpIPredicate::slt, arith::CmpFPredicate::OLT); }
Expr operator<=(Expr a, Expr b) { return compare(a, b, arith::CmpIPredicate::sle, arith::CmpFPredicate::OLE); }
Expr operator>(Expr a, Expr b) { return compare(a, b, arith::CmpIPredicate::sgt, arith::CmpFPredicate::OGT); }
Expr operator>=(Expr a, Expr b) { return compare(a, b, arith::CmpIPredicate::sge, arith::CmpFPredicate::OGE); }
Expr operator==(Expr a, Expr b) { return compare(a, b, arith::CmpIPredicate::eq, arith::CmpFPredicate::OEQ); }
Expr operator!=(Expr a, Expr b) { return compare(a, b, arith::CmpIPredicate::ne, arith::CmpFPredicate::UNE); }
Expr unsignedAtLeast(Expr a, Expr b) { return compare(a, b, arith::CmpIPredicate::uge, arith::CmpFPredicate::OGE); }

Expr atMost(Expr a, Expr b) { return arithmetic<arith::MinSIOp, arith::MinNumFOp>(a, b); }
Expr atLeast(Expr a, Expr b) { return arithmetic<arith::MaxSIOp, arith::MaxNumFOp>(a, b); }

Expr select(Expr condition, Expr a, Expr b) {
  Pair p(a, b);
  return {p.f, p.f.b.createOrFold<arith::SelectOp>(condition.get(), p.a, p.b)};
}

Expr ceilDivide(Expr a, Expr b) { return (a + b - 1) / b; }

Expr wide(Expr x) {
  KernelFunction &f = x.function();
  return {f, f.b.createOrFold<arith::ExtSIOp>(f.b.getI64Type(), x.get())};
}

Expr wideUnsigned(Expr x) {
  KernelFunction &f = x.function();
  return {f, f.b.createOrFold<arith::ExtUIOp>(f.b.getI64Type(), x.get())};
}

Expr narrow(Expr x) {
  KernelFunction &f = x.function();
  return {f, f.b.createOrFold<arith::TruncIOp>(f.b.getI32Type(), x.get())};
}

Expr high(Expr x) { return narrow(x >> 32); }

Expr wideProduct(Expr a, Expr b) {
  Pair p(a, b);
  return wideUnsigned(Expr(p.f, p.a)) * wideUnsigned(Expr(p.f, p.b));
}

Expr exp2(Expr x) { return {x.function(), x.function().exp2(x.get())}; }
Expr log2(Expr x) { return {x.function(), x.function().log2(x.get())}; }

Variable::Variable(Expr initial) : f(&initial.function()), type(initial.type()) {
  {
    OpBuilder::InsertionGuard guard(f->b);
    auto function = f->b.getInsertionBlock()->getParentOp();
    while (!isa<LLVM::LLVMFuncOp>(function))
      function = function->getParentOp();
    f->b.setInsertionPointToStart(&cast<LLVM::LLVMFuncOp>(function).getBody().front());
    Value one = f->b.create<LLVM::ConstantOp>(f->b.getI32Type(), f->b.getI32IntegerAttr(1));
    slot = f->b.create<LLVM::AllocaOp>(LLVM::LLVMPointerType::get(f->b.getContext()), type, one);
  }
  set(initial);
}

Expr Variable::get() const { return {*f, f->b.create<LLVM::LoadOp>(type, slot)}; }

void Variable::set(Expr value) { f->b.create<LLVM::StoreOp>(value.as(*f, type), slot); }

void loop(Expr begin, Expr end, Expr step, const std::function<void(Expr)> &body) {
  Pair bounds(begin, end);
  KernelFunction &f = bounds.f;
  auto op = f.b.create<scf::ForOp>(bounds.a, bounds.b, step.as(f, bounds.a.getType()));
  OpBuilder::InsertionGuard guard(f.b);
  f.b.setInsertionPointToStart(op.getBody());
  body(Expr(f, op.getInductionVar()));
}

void loopWhile(const std::function<Expr()> &condition, const std::function<void()> &body) {
  Expr first = condition();
  Variable isOn(first);
  KernelFunction &f = first.function();
  auto op = f.b.create<scf::WhileOp>(TypeRange(), ValueRange());
  OpBuilder::InsertionGuard guard(f.b);
  f.b.createBlock(&op.getBefore());
  f.b.create<scf::ConditionOp>(isOn.get().get(), ValueRange());
  f.b.createBlock(&op.getAfter());
  body();
  isOn.set(condition());
  f.b.create<scf::YieldOp>();
}

void when(Expr condition, const std::function<void()> &body) {
  KernelFunction &f = condition.function();
  auto op = f.b.create<scf::IfOp>(condition.get(), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(f.b);
  f.b.setInsertionPointToStart(&op.getThenRegion().front());
  body();
}

Expr elementAt(Expr base, Expr index, Type element) {
  return {base.function(), base.function().address(base.get(), index.get(), element)};
}

std::vector<Expr> loadElements(Expr from, Type element, int count) {
  KernelFunction &f = from.function();
  int perWord = 32 / static_cast<int>(element.getIntOrFloatBitWidth()), words = count / perWord;
  if (words == 0)
    return {Expr(f, f.load(from.get(), f.integer(0), element))};
  std::vector<Expr> values;
  for (int first = 0; first < words; first += 4) {
    int some = std::min(words - first, 4);
    Value loaded = f.loadWords(elementAt(from, Expr(f, f.integer(first)), f.b.getI32Type()).get(), some);
    for (int i = 0; i < some; ++i) {
      Value word = some == 1 ? loaded : f.extract(loaded, i);
      if (perWord == 2) {
        auto [low, high] = f.unpackPair(word, element);
        values.insert(values.end(), {Expr(f, low), Expr(f, high)});
      } else {
        values.emplace_back(f, f.b.create<arith::BitcastOp>(f.b.getF32Type(), word));
      }
    }
  }
  return values;
}

void storeElements(const std::vector<Expr> &values, Expr to, Type element) {
  KernelFunction &f = to.function();
  int perWord = 32 / static_cast<int>(element.getIntOrFloatBitWidth()), count = static_cast<int>(values.size());
  int words = count / perWord;
  if (words == 0)
    return f.store(values[0].get(), to.get(), f.integer(0), element);
  for (int first = 0; first < words; first += 4) {
    int some = std::min(words - first, 4);
    Value all;
    if (some > 1)
      all = f.b.create<LLVM::UndefOp>(VectorType::get({some}, f.b.getI32Type()));
    for (int i = 0; i < some; ++i) {
      int at = (first + i) * perWord;
      Value word = perWord == 2 ? f.packPair(values[at].get(), values[at + 1].get(), element)
                                : f.b.create<arith::BitcastOp>(f.b.getI32Type(), values[at].get());
      all = some == 1 ? word : f.insert(word, all, i);
    }
    f.storeWords(all, elementAt(to, Expr(f, f.integer(first)), f.b.getI32Type()).get());
  }
}

Expr loadValue(Expr from, Type type) {
  KernelFunction &f = from.function();
  return {f, f.b.create<LLVM::LoadOp>(type, from.get(), type.getIntOrFloatBitWidth() / 8)};
}

void storeValue(Expr value, Expr to) {
  to.function().b.create<LLVM::StoreOp>(value.get(), to.get(), value.type().getIntOrFloatBitWidth() / 8);
}

Expr sharedAt(KernelFunction &f, Expr offset) {
  return {f, f.address(f.shared(), offset.as(f, f.b.getI32Type()), f.b.getI8Type())};
}

} // namespace espalier::codegen::cuda
