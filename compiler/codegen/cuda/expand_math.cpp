// Expands exp, log, tanh, erf, square roots and quotients on f32 to ex2, lg2, rcp, sqrt and div. Relative errors are
// about 1e-6 (test/compiler/codegen/cuda/math_test.cpp). Values below 2^-126 count as 0.
#include "compiler/codegen/cuda/arithmetic.h"
#include "compiler/codegen/cuda/shape_kernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

#include <numbers>

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

Value abs(Arithmetic &f, Value x) { return f.b.create<math::AbsFOp>(x); }

/// Returns the non-negative `magnitude` with the sign of x.
Value copySign(Arithmetic &f, Value magnitude, Value x) {
  auto bits = [&](Value number) -> Value { return f.b.create<arith::BitcastOp>(f.b.getI32Type(), number); };
  Value sign = f.b.create<arith::AndIOp>(bits(x), f.integer(0x80000000));
  return f.b.create<arith::BitcastOp>(f.b.getF32Type(), f.b.create<arith::OrIOp>(bits(magnitude), sign));
}

Value choose(Arithmetic &f, arith::CmpFPredicate predicate, Value x, double bound, Value yes, Value no) {
  return f.b.create<arith::SelectOp>(f.b.create<arith::CmpFOp>(predicate, x, f.number(bound)), yes, no);
}

/// Evaluates a polynomial by Horner's scheme, highest coefficient first.
Value polynomial(Arithmetic &f, Value x, ArrayRef<double> coefficients) {
  Value sum = f.number(coefficients[0]);
  for (double coefficient : coefficients.drop_front())
    sum = f.fma(sum, x, f.number(coefficient));
  return sum;
}

/// Returns the value of a constant with equal lanes.
std::optional<double> constantOf(Value x) {
  if (auto broadcast = x.getDefiningOp<vector::BroadcastOp>())
    x = broadcast.getSource();
  DenseElementsAttr elements;
  FloatAttr number;
  if (matchPattern(x, m_Constant(&number)))
    return number.getValueAsDouble();
  if (matchPattern(x, m_Constant(&elements)) && elements.isSplat())
    return elements.getSplatValue<APFloat>().convertToDouble();
  return std::nullopt;
}

/// Returns whether `t` is only added to numbers of magnitude 1 (as in gelu's 1 + tanh and 1 - tanh^2), so that its
/// absolute error matters, not the relative error near 0.
bool isBesideOne(Value t) {
  return llvm::all_of(t.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isa<arith::AddFOp, arith::SubFOp>(user)) {
      std::optional<double> other = constantOf(user->getOperand(1 - use.getOperandNumber()));
      return other && std::abs(*other) >= 0.5;
    }
    return isa<arith::MulFOp>(user) && user->getOperand(0) == t && user->getOperand(1) == t &&
           isBesideOne(user->getResult(0));
  });
}

/// Computes 1 - 2 / (exp(2 x) + 1), or S. Moshier's polynomial (Cephes, tanhf) if this formula would cancel.
Value tanh(Arithmetic &f, Value x, bool isAbsolute) {
  auto fromPower = [&](Value x) {
    Value power = f.exp2(f.mul(x, f.number(2 * std::numbers::log2e)));
    return f.fma(f.reciprocal(f.add(power, f.number(1))), f.number(-2), f.number(1));
  };
  if (isAbsolute)
    return fromPower(x);
  Value square = f.mul(x, x), magnitude = abs(f, x);
  Value small = polynomial(
      f, square, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
  small = f.fma(f.mul(small, square), x, x);
  return choose(f, arith::CmpFPredicate::OLT, magnitude, 0.625, small, copySign(f, fromPower(magnitude), x));
}

/// Computes 1 - 2^(-r(|x|)) with the sign of x. r is a polynomial of degree 8 fitted for the least absolute error (1e-7
/// with all roundings). If the relative error matters, uses S. Moshier's polynomial (Cephes, ndtrf) below 0.93.
Value erf(Arithmetic &f, Value x, bool isAbsolute) {
  Value magnitude = abs(f, x);
  Value exponent = polynomial(f, magnitude,
                              {4.53559217e-05, -4.45487996e-04, 1.48938517e-03, 7.74710696e-04, -2.82537425e-02,
                               1.48481639e-01, 9.18416389e-01, 1.62790859e+00});
  exponent = f.mul(exponent, f.mul(magnitude, f.number(-1)));
  Value large = copySign(f, f.sub(f.number(1), f.exp2(exponent)), x);
  if (isAbsolute)
    return large;
  Value small = polynomial(
      f, f.mul(x, x), {-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1});
  return choose(f, arith::CmpFPredicate::OGT, magnitude, 0.927734375, large, f.fma(small, x, x));
}

/// Expands `op` on scalars.
Value expand(Arithmetic &f, Operation *op, ArrayRef<Value> x) {
  if (isa<math::ExpOp>(op))
    return f.exp(x[0]);
  if (isa<math::LogOp>(op))
    return f.log(x[0]);
  if (isa<math::TanhOp>(op))
    return tanh(f, x[0], isBesideOne(op->getResult(0)));
  if (isa<math::ErfOp>(op))
    return erf(f, x[0], isBesideOne(op->getResult(0)));
  if (isa<math::SqrtOp>(op))
    return f.sqrt(x[0]);
  return constantOf(op->getOperand(0)) == 1 ? f.reciprocal(x[1]) : f.divide(x[0], x[1]);
}

} // namespace

void expandMath(Operation *root) {
  root->walk([](Operation *op) {
    if (!isa<math::ExpOp, math::LogOp, math::TanhOp, math::ErfOp, math::SqrtOp, arith::DivFOp>(op) ||
        !getElementTypeOrSelf(op->getResult(0)).isF32())
      return;
    ImplicitLocOpBuilder builder(op->getLoc(), op);
    Arithmetic f(builder);
    Value result;
    if (auto type = dyn_cast<VectorType>(op->getResult(0).getType())) {
      result = builder.create<LLVM::PoisonOp>(type);
      for (int64_t lane = 0; lane < type.getDimSize(0); ++lane) {
        SmallVector<Value> operands;
        for (Value operand : op->getOperands())
          operands.push_back(f.extract(operand, lane));
        result = f.insert(expand(f, op, operands), result, lane);
      }
    } else {
      result = expand(f, op, SmallVector<Value>(op->getOperands()));
    }
    op->replaceAllUsesWith(ValueRange{result});
    op->erase();
  });
}

} // namespace espalier::codegen::cuda
