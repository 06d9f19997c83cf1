// Expands exp, log, tanh and erf on f32 lanes to range reductions and polynomials, so that kernels call no library.
// Relative errors are about 1e-7. Infinities, subnormals and NaNs give the same results as libm
// (test/compiler/codegen/math_test.cpp). Polynomials: S. Moshier, Cephes (expf, logf, tanhf); erf in two pieces,
// exp(-r) beyond 0.93.
#include "compiler/codegen/cpu/kernel_builder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;

namespace espalier::codegen {

namespace {

/// Emits f32 arithmetic on a fixed number of lanes.
class Expander {
public:
  Expander(ImplicitLocOpBuilder &b, Type type) : b(b), lanes(b, target), number(type) {
    auto vector = dyn_cast<VectorType>(type);
    width = vector ? vector.getDimSize(0) : 1;
    word = lanes.type(b.getI32Type(), width);
  }

  Value exp(Value x);
  Value log(Value x);
  Value tanh(Value x);
  Value erf(Value x);

private:
  Value real(double value) { return lanes.number(value, width); }
  Value bits(uint32_t value) { return lanes.integer(static_cast<int32_t>(value), width, 32); }
  Value add(Value a, Value x) { return b.create<arith::AddFOp>(a, x); }
  Value sub(Value a, Value x) { return b.create<arith::SubFOp>(a, x); }
  Value mul(Value a, Value x) { return b.create<arith::MulFOp>(a, x); }
  /// Returns a * x + c, fused if the target supports it.
  Value fma(Value a, Value x, Value c) { return b.create<LLVM::FMulAddOp>(a, x, c); }
  Value toBits(Value x) { return b.create<arith::BitcastOp>(word, x); }
  Value fromBits(Value x) { return b.create<arith::BitcastOp>(number, x); }
  Value abs(Value x) { return fromBits(b.create<arith::AndIOp>(toBits(x), bits(0x7fffffff))); }
  /// Returns |a| with the sign of x.
  Value copySign(Value a, Value x) {
    Value sign = b.create<arith::AndIOp>(toBits(x), bits(0x80000000));
    return fromBits(b.create<arith::OrIOp>(toBits(abs(a)), sign));
  }
  Value choose(arith::CmpFPredicate predicate, Value x, double bound, Value yes, Value no) {
    return b.create<arith::SelectOp>(b.create<arith::CmpFOp>(predicate, x, real(bound)), yes, no);
  }
  /// Evaluates a polynomial by Horner's scheme, highest coefficient first.
  Value polynomial(Value x, ArrayRef<double> coefficients) {
    Value sum = real(coefficients[0]);
    for (double coefficient : coefficients.drop_front())
      sum = fma(sum, x, real(coefficient));
    return sum;
  }
  /// Returns 2^n for integers n between -126 and 127.
  Value powerOfTwo(Value n) {
    return fromBits(b.create<arith::ShLIOp>(b.create<arith::AddIOp>(n, bits(127)), bits(23)));
  }

  ImplicitLocOpBuilder &b;
  VectorTarget target;
  CpuLanes lanes;
  Type number, word;
  int width;
};

/// exp(x) = 2^n exp(r), |r| <= ln 2 / 2. 2^n is applied as two factors, so that subnormal results and results near the
/// largest number are correct.
Value Expander::exp(Value x) {
  x = choose(arith::CmpFPredicate::OLT, x, -104.5, real(-104.5), x);
  x = choose(arith::CmpFPredicate::OGT, x, 89, real(89), x);
  Value magic = real(12582912.0); // 1.5 * 2^23: adding this number rounds to an integer
  Value shifted = fma(x, real(1.44269504088896341), magic);
  Value whole = sub(shifted, magic);
  Value n = b.create<arith::SubIOp>(toBits(shifted), toBits(magic));
  Value r = fma(whole, real(-0.693359375), x);
  r = fma(whole, real(2.12194440e-4), r);
  Value tail = polynomial(
      r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
  Value y = add(fma(tail, mul(r, r), r), real(1));
  Value half = b.create<arith::ShRSIOp>(n, bits(1));
  return mul(mul(y, powerOfTwo(half)), powerOfTwo(b.create<arith::SubIOp>(n, half)));
}

/// log(x) = e ln 2 + log(1 + m), sqrt(1/2) <= 1 + m < sqrt(2).
Value Expander::log(Value x) {
  Value isSubnormal = b.create<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, real(1.17549435e-38));
  Value scaled = b.create<arith::SelectOp>(isSubnormal, mul(x, real(8388608)), x);
  Value exponent = b.create<arith::ShRUIOp>(toBits(scaled), bits(23));
  exponent = b.create<arith::SubIOp>(exponent, b.create<arith::SelectOp>(isSubnormal, bits(126 + 23), bits(126)));
  Value mantissa = b.create<arith::AndIOp>(toBits(scaled), bits(0x007fffff));
  mantissa = fromBits(b.create<arith::OrIOp>(mantissa, bits(0x3f000000)));
  Value isLow = b.create<arith::CmpFOp>(arith::CmpFPredicate::OLT, mantissa, real(0.707106781186547524));
  exponent = b.create<arith::SubIOp>(exponent, b.create<arith::SelectOp>(isLow, bits(1), bits(0)));
  Value m = sub(b.create<arith::SelectOp>(isLow, add(mantissa, mantissa), mantissa), real(1));
  Value e = b.create<arith::SIToFPOp>(number, exponent);
  Value square = mul(m, m);
  Value y = polynomial(m, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                           -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  y = mul(mul(y, m), square);
  y = fma(e, real(-2.12194440e-4), y);
  y = fma(square, real(-0.5), y);
  y = fma(e, real(0.693359375), add(m, y));
  double infinity = std::numeric_limits<double>::infinity();
  y = choose(arith::CmpFPredicate::OEQ, x, infinity, x, y);
  y = choose(arith::CmpFPredicate::OEQ, x, 0, real(-infinity), y);
  return choose(arith::CmpFPredicate::UGE, x, 0,
                b.create<arith::SelectOp>(b.create<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x), x, y),
                real(std::numeric_limits<double>::quiet_NaN()));
}

Value Expander::tanh(Value x) {
  Value magnitude = abs(x), square = mul(x, x);
  Value small =
      polynomial(square, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
  small = fma(mul(small, square), x, x);
  Value power = exp(add(magnitude, magnitude));
  Value large = sub(real(1), b.create<arith::DivFOp>(real(2), add(power, real(1))));
  return choose(arith::CmpFPredicate::OLT, magnitude, 0.625, small, copySign(large, x));
}

Value Expander::erf(Value x) {
  Value magnitude = abs(x), square = mul(x, x);
  Value small =
      polynomial(square, {-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1});
  small = fma(small, x, x);
  Value exponent = fma(real(-1.72853470e-5), magnitude, real(3.83197126e-4));
  Value even = fma(real(-3.88396438e-3), magnitude, real(2.42546219e-2));
  exponent = fma(exponent, square, even);
  for (double coefficient : {-1.06777877e-1, -6.34846687e-1, -1.28717512e-1, -1.0})
    exponent = coefficient == -1.0 ? fma(exponent, magnitude, mul(magnitude, real(-1)))
                                   : fma(exponent, magnitude, real(coefficient));
  // Beyond 10 the polynomial is no longer negative. From 4 on, erf is 1 in f32.
  exponent = choose(arith::CmpFPredicate::OGT, magnitude, 6, real(-104), exponent);
  Value large = sub(real(1), exp(exponent));
  return choose(arith::CmpFPredicate::OGT, magnitude, 0.927734375, copySign(large, x), small);
}

} // namespace

void expandMath(Operation *root) {
  root->walk([](Operation *op) {
    if (!isa<math::ExpOp, math::LogOp, math::TanhOp, math::ErfOp>(op))
      return;
    ImplicitLocOpBuilder builder(op->getLoc(), op);
    Expander expander(builder, op->getResult(0).getType());
    Value x = op->getOperand(0);
    Value expanded = isa<math::ExpOp>(op)    ? expander.exp(x)
                     : isa<math::LogOp>(op)  ? expander.log(x)
                     : isa<math::TanhOp>(op) ? expander.tanh(x)
                                             : expander.erf(x);
    op->replaceAllUsesWith(ValueRange{expanded});
    op->erase();
  });
}

} // namespace espalier::codegen
