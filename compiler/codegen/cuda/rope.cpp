// y = x rotated pair by pair, (i, i + head_dim / 2) by position * theta^(-2 i / head_dim). A thread has a few
// neighbouring pairs of a token and rotates them in all heads, so that sine and cosine are computed once. Whole turns
// are removed in f64, so large positions lose no precision. If only some columns are rotated, the other threads of a
// token copy the rest.
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
        rotary(integerParameter(kernel, "rotary", headDim)), before(integerParameter(kernel, "first", 0)),
        isInverse(kernel.getParameters()->contains("inverse")),
        isInterleaved(kernel.getParameters()->contains("interleaved")), theta(realParameter(kernel, "theta")),
        factor(realParameter(kernel, "factor", 1)), slow(realParameter(kernel, "slow", 0)),
        fast(realParameter(kernel, "fast", 0)), context(realParameter(kernel, "original_context", 0)),
        amplitude(realParameter(kernel, "amplitude", 1)) {}

  void build() {
    int64_t perToken = headDim / 2 / width;
    Expr thread(f, f.threadIndex()), token = Expr(f, f.blockBegin()) + wide(thread / perToken);
    when(token < Expr(f, f.blockEnd()), [&] {
      Expr first = thread % perToken * width;
      if (rotary == headDim)
        return rotateAll(token, first);
      when(first < rotary / 2, [&] { rotateAll(token, first); });
      when(first >= rotary / 2, [&] { copyAll(token, first); });
    });
  }

private:
  /// Rotates pairs [first, first + width) of a token in all heads.
  void rotateAll(Expr token, Expr first) {
    Expr position = loadValue(elementAt(Expr(f, f.buffer("positions")), token, f.b.getI32Type()), f.b.getI32Type());
    std::vector<Expr> cosines, sines;
    Expr turning = frequency(first);
    for (int i = 0; i < width; ++i) {
      auto [cosine, sine] = rotation(position, scaled(turning, first + i));
      cosines.push_back(amplitude == 1 ? cosine : cosine * amplitude);
      sines.push_back(amplitude == 1 ? sine : sine * amplitude);
      turning = turning * step(1);
    }
    forEachHead(token, [&](Expr at) {
      if (isInterleaved)
        rotateNeighbours(at + wide(first * 2 + before), cosines, sines);
      else
        rotate(at + wide(first + before), cosines, sines);
    });
  }

  /// Copies two columns for each of the pairs [first, first + width), which are not rotated.
  void copyAll(Expr token, Expr first) {
    Expr column = first * 2;
    if (before > 0) // the columns before the rotated ones, then those after them
      column = select(column - rotary < before, column - rotary, column);
    forEachHead(token, [&](Expr at) {
      for (int half = 0; half < 2; ++half) {
        Expr place = at + wide(column) + half * width;
        storeElements(loadElements(elementAt(Expr(f, f.buffer("x")), place, from), from, width),
                      elementAt(Expr(f, f.buffer("y")), place, to), to);
      }
    });
  }

  /// Runs `body` with the place of each head of a token.
  void forEachHead(Expr token, const std::function<void(Expr)> &body) {
    Expr heads(f, f.scalar("heads"));
    loop(Expr(f, f.integer(0, 64)), heads, 1, [&](Expr head) { body((token * heads + head) * headDim); });
  }

  /// Returns theta^(-2 i / rotary).
  double step(double i) const { return std::pow(theta, -2 * i / static_cast<double>(rotary)); }

  Expr f64(double value) { return {f, Expr(value).as(f, f.b.getF64Type())}; }

  /// Returns the quarter turns per position of pair `i`, as a product of constants selected by the bits of i.
  Expr frequency(Expr i) {
    Expr result = f64(2 / std::numbers::pi);
    for (int64_t bit = 1; bit < rotary / 2; bit *= 2)
      result = result * select((i & bit) != 0, f64(step(static_cast<double>(bit))), 1.0);
    return result;
  }

  /// Returns the frequency of pair `i`, in quarter turns, after scaling.
  Expr scaled(Expr frequency, Expr i) {
    if (slow == fast)
      return factor == 1 ? frequency : frequency * (1 / factor);
    Expr at = context > 0 ? frequency * (context / 4) : Expr(f, f.b.create<arith::SIToFPOp>(f.b.getF64Type(), i.get()));
    Expr kept = atMost(atLeast((at - slow) * (1 / (fast - slow)), 0.0), 1.0);
    return frequency * (kept * (1 - 1 / factor) + 1 / factor);
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
    std::vector<Expr> high = loadElements(elementAt(x, at + rotary / 2, from), from, width), newHigh;
    for (int i = 0; i < width; ++i) {
      newLow.push_back(low[i] * cosines[i] - high[i] * sines[i]);
      newHigh.push_back(high[i] * cosines[i] + low[i] * sines[i]);
    }
    storeElements(newLow, elementAt(y, at, to), to);
    storeElements(newHigh, elementAt(y, at + rotary / 2, to), to);
  }

  /// The same with pairs of neighbours.
  void rotateNeighbours(Expr at, const std::vector<Expr> &cosines, const std::vector<Expr> &sines) {
    Expr x(f, f.buffer("x")), y(f, f.buffer("y"));
    std::vector<Expr> values = loadElements(elementAt(x, at, from), from, width);
    llvm::append_range(values, loadElements(elementAt(x, at + width, from), from, width));
    for (int i = 0; i < width; ++i) {
      Expr first = values[2 * i], second = values[2 * i + 1];
      values[2 * i] = first * cosines[i] - second * sines[i];
      values[2 * i + 1] = second * cosines[i] + first * sines[i];
    }
    storeElements({values.begin(), values.begin() + width}, elementAt(y, at, to), to);
    storeElements({values.begin() + width, values.end()}, elementAt(y, at + width, to), to);
  }

  KernelFunction &f;
  Type from, to;
  int64_t headDim;
  int width;
  int64_t rotary, before; ///< columns that are rotated, and columns before them
  bool isInverse, isInterleaved;
  double theta, factor, slow, fast, context, amplitude; ///< as functions.def defines them
};

} // namespace

template <> LogicalResult build<SpecialKernel::rope>(KernelFunction &f, exec::KernelOp kernel) {
  Rope(f, kernel).build();
  return success();
}

} // namespace espalier::codegen::cuda
