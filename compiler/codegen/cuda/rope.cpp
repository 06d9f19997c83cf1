// y = x rotated pair by pair, (i, i + head_dim / 2) by position * theta^(-2 i / head_dim). A thread has a few
// neighbouring pairs of a token and rotates them in all heads, so that sine and cosine are computed once. Whole turns
// are removed in f64, so large positions lose no precision.
#include "compiler/codegen/cuda/special_kernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cmath>
#include <numbers>

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

class Rope {
public:
  Rope(KernelFunction &f, exec::KernelOp kernel)
      : f(f), from(typeParameter(kernel, "x")), to(typeParameter(kernel, "y")),
        headDim(integerParameter(kernel, "head_dim")), width(static_cast<int>(integerParameter(kernel, "width"))),
        isInverse(kernel.getParameters()->contains("inverse")), theta(realParameter(kernel, "theta")) {}

  void build() {
    int64_t perToken = headDim / 2 / width;
    Expr thread(f, f.threadIndex()), token = Expr(f, f.blockBegin()) + wide(thread / perToken);
    when(token < Expr(f, f.blockEnd()), [&] {
      Expr first = thread % perToken * width;
      Expr position = loadValue(elementAt(Expr(f, f.buffer("positions")), token, f.b.getI32Type()), f.b.getI32Type());
      std::vector<Expr> cosines, sines;
      Expr turning = frequency(first);
      for (int i = 0; i < width; ++i) {
        auto [cosine, sine] = rotation(position, turning);
        cosines.push_back(cosine);
        sines.push_back(sine);
        turning = turning * step(1);
      }
      Expr heads(f, f.scalar("heads"));
      loop(Expr(f, f.integer(0, 64)), heads, 1,
           [&](Expr head) { rotate((token * heads + head) * headDim + wide(first), cosines, sines); });
    });
  }

private:
  /// Returns theta^(-2 i / head_dim).
  double step(double i) const { return std::pow(theta, -2 * i / static_cast<double>(headDim)); }

  Expr f64(double value) { return {f, Expr(value).as(f, f.b.getF64Type())}; }

  /// Returns the quarter turns per position of pair `i`, as a product of constants selected by the bits of i.
  Expr frequency(Expr i) {
    Expr result = f64(2 / std::numbers::pi);
    for (int64_t bit = 1; bit < headDim / 2; bit *= 2)
      result = result * select((i & bit) != 0, f64(step(static_cast<double>(bit))), 1.0);
    return result;
  }

  /// Like the CPU kernel: removes quarter turns by rounding, then uses the Taylor series for at most pi / 4.
  std::pair<Expr, Expr> rotation(Expr position, Expr frequency) {
    constexpr double toInteger =
        6755399441055744.0; // 1.5 * 2^52: adding it rounds, and leaves the integer in the low bits
    Expr quarters = Expr(f, f.b.create<arith::SIToFPOp>(f.b.getF64Type(), position.get())) * frequency;
    Expr shifted = quarters + toInteger, rest = (quarters - (shifted - toInteger)) * (std::numbers::pi / 2);
    Expr quadrant = narrow(Expr(f, f.b.create<arith::BitcastOp>(f.b.getI64Type(), shifted.get()))) & 3;
    Expr x(f, f.b.create<arith::TruncFOp>(f.b.getF32Type(), rest.get())), s = x * x;
    Expr sine = x + x * s * (s * (s * (s * (1.0 / 362880) - 1.0 / 5040) + 1.0 / 120) - 1.0 / 6);
    Expr cosine = s * (s * (s * (s * (s * (-1.0 / 3628800) + 1.0 / 40320) - 1.0 / 720) + 1.0 / 24) - 0.5) + 1.0;
    Expr isOdd = (quadrant & 1) != 0, c = select(isOdd, sine, cosine), n = select(isOdd, cosine, sine);
    c = select((quadrant == 1) | (quadrant == 2), c * -1.0, c);
    n = select((quadrant >= 2) ^ Expr(f, f.integer(isInverse, 1)), n * -1.0, n);
    return {c, n};
  }

  void rotate(Expr at, const std::vector<Expr> &cosines, const std::vector<Expr> &sines) {
    Expr x(f, f.buffer("x")), y(f, f.buffer("y"));
    std::vector<Expr> low = loadElements(elementAt(x, at, from), from, width), newLow;
    std::vector<Expr> high = loadElements(elementAt(x, at + headDim / 2, from), from, width), newHigh;
    for (int i = 0; i < width; ++i) {
      newLow.push_back(low[i] * cosines[i] - high[i] * sines[i]);
      newHigh.push_back(high[i] * cosines[i] + low[i] * sines[i]);
    }
    storeElements(newLow, elementAt(y, at, to), to);
    storeElements(newHigh, elementAt(y, at + headDim / 2, to), to);
  }

  KernelFunction &f;
  Type from, to;
  int64_t headDim;
  int width;
  bool isInverse;
  double theta;
};

} // namespace

template <> LogicalResult build<SpecialKernel::rope>(KernelFunction &f, exec::KernelOp kernel) {
  Rope(f, kernel).build();
  return success();
}

} // namespace espalier::codegen::cuda
