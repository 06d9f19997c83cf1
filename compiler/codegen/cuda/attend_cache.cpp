// Attention over a cache, for generation. keep_rows stores the new keys and values; then attend_cache lets each query
// attend to the cache up to its own position. A block computes one query of one head. Its warps take keys in turn, each
// with a running maximum, and the sums of the warps are combined in order.
#include "compiler/codegen/cuda/special_kernels.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"

#include <numbers>

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// A value below every score.
constexpr double lowest = -3.0e38;

/// The columns of a row that one lane holds: `width` neighbours, repeated with the stride of all lanes.
class LaneColumns {
public:
  LaneColumns(KernelFunction &f, Type element, int64_t headDim, int width)
      : f(f), element(element), headDim(headDim), width(width), lane(f, f.laneIndex()),
        pieces(static_cast<int>(llvm::divideCeil(headDim, 32 * width))) {}

  int count() const { return pieces * width; }

  /// Runs `body` with the index and first column of each piece that lies within the row.
  void forEach(const std::function<void(int, Expr)> &body) const {
    for (int piece = 0; piece < pieces; ++piece) {
      Expr column = lane * width + piece * 32 * width;
      if ((piece + 1) * 32 * width <= headDim)
        body(piece, column);
      else
        when(column < headDim, [&] { body(piece, column); });
    }
  }

  /// Loads a row's values as f32; 0 after the end of the row.
  std::vector<Expr> load(Expr row) const {
    std::vector<Variable> values = zeros();
    forEach([&](int piece, Expr column) {
      std::vector<Expr> loaded = loadElements(elementAt(row, column, element), element, width);
      for (int i = 0; i < width; ++i)
        values[piece * width + i].set(loaded[i]);
    });
    return gets(values);
  }

  std::vector<Variable> zeros() const {
    std::vector<Variable> values;
    for (int i = 0; i < count(); ++i)
      values.emplace_back(Expr(f, f.number(0)));
    return values;
  }

  static std::vector<Expr> gets(const std::vector<Variable> &values) {
    std::vector<Expr> all;
    for (const Variable &value : values)
      all.push_back(value.get());
    return all;
  }

  KernelFunction &f;
  const Type element;
  const int64_t headDim;
  const int width;

private:
  const Expr lane;
  const int pieces;
};

/// Builds attend_cache.
class AttendCache {
public:
  AttendCache(KernelFunction &f, exec::KernelOp kernel)
      : f(f), element(typeParameter(kernel, "type")), headDim(integerParameter(kernel, "head_dim")),
        valueDim(integerParameter(kernel, "value_dim", headDim)), scale(realParameter(kernel, "scale")),
        softCap(realParameter(kernel, "soft_cap", 0)), window(integerParameter(kernel, "window", 0)),
        hasSums(kernel.getParameters() && kernel.getParameters()->contains("lse")),
        columns(f, element, headDim, static_cast<int>(integerParameter(kernel, "width"))),
        valueColumns(f, element, valueDim, columns.width) {}

  void build() {
    Expr row = wide(Expr(f, f.blockX())), heads = at("kv_heads"), group = at("group");
    Expr head = row / group % heads, token = row / group / heads, sequence = token / at("seq");
    Expr position = loadValue(elementAt(Expr(f, f.buffer("positions")), token, f.b.getI32Type()), f.b.getI32Type());
    Expr isPadding = (position < 0) | (wide(position) >= at("context"));
    Expr first = (sequence * heads + head) * at("context");
    std::vector<Expr> query = columns.load(rowAt("q", row * headDim));
    Variable largest(Expr(f, f.number(lowest))), sum(Expr(f, f.number(0)));
    std::vector<Variable> out = valueColumns.zeros();
    Expr begin = wide(Expr(f, f.warpIndex()));
    if (window > 0)
      begin = begin + atLeast(wide(position) + (1 - window), 0);
    // All lanes of a warp run the loop together, because all take part in the warp reductions.
    loop(begin, select(isPadding, Expr(f, f.integer(0, 64)), wide(position) + 1), warps(),
         [&](Expr key) { see(query, first + key, largest, sum, out); });
    leave(largest.get(), sum.get(), LaneColumns::gets(out));
    f.barrier();
    join(row, isPadding);
  }

private:
  int64_t warps() const { return f.geometry.getThreads() / 32; }
  Expr at(StringRef size) { return {f, f.scalar(size)}; }
  Expr rowAt(StringRef operand, Expr place) { return elementAt(Expr(f, f.buffer(operand)), place, element); }

  /// Adds one key. Earlier sums are rescaled to the new maximum.
  void see(const std::vector<Expr> &query, Expr row, Variable &largest, Variable &sum, std::vector<Variable> &out) {
    std::vector<Expr> key = columns.load(rowAt("keys", row * headDim));
    std::vector<Expr> value = valueColumns.load(rowAt("values", row * valueDim));
    Expr product = query[0] * key[0];
    for (int i = 1; i < columns.count(); ++i)
      product = product + query[i] * key[i];
    // Scores are in units of log2, for ex2.
    Expr total(f, f.reduceWarp(product.get(), Reduction::Add)), score = total * (scale * std::numbers::log2e);
    if (softCap > 0)
      score = Expr(f, f.b.create<math::TanhOp>((total * (scale / softCap)).get())) * (softCap * std::numbers::log2e);
    Expr before = largest.get(), now = atLeast(before, score);
    Expr shrunk = exp2(before - now), weight = exp2(score - now);
    largest.set(now);
    sum.set(sum.get() * shrunk + weight);
    for (int i = 0; i < valueColumns.count(); ++i)
      out[i].set(out[i].get() * shrunk + weight * value[i]);
  }

  /// Shared memory: the maxima of the warps, their sums, their rows.
  Expr shared(Expr index) { return sharedAt(f, index * 4); }
  Expr number(Expr index) { return loadValue(shared(index), f.b.getF32Type()); }

  void leave(Expr largest, Expr sum, const std::vector<Expr> &out) {
    Expr warp(f, f.warpIndex());
    storeValue(largest, shared(warp)); // all lanes store the same number
    storeValue(sum, shared(warp + warps()));
    valueColumns.forEach([&](int piece, Expr column) {
      for (int i = 0; i < columns.width; ++i)
        storeValue(out[piece * columns.width + i], shared(warp * valueDim + column + i + 2 * warps()));
    });
  }

  void join(Expr row, Expr isPadding) {
    Expr largest = number(Expr(f, f.integer(0)));
    for (int64_t warp = 1; warp < warps(); ++warp)
      largest = atLeast(largest, number(Expr(f, f.integer(warp))));
    Expr sum(f, f.number(0));
    std::vector<Expr> weights;
    for (int64_t warp = 0; warp < warps(); ++warp) {
      weights.push_back(exp2(number(Expr(f, f.integer(warp))) - largest));
      sum = sum + weights.back() * number(Expr(f, f.integer(warps() + warp)));
    }
    if (hasSums)
      when(Expr(f, f.threadIndex()) == Expr(f, f.integer(0)), [&] {
        Expr logSum(f, f.b.create<math::LogOp>(sum.get()));
        storeValue(select(isPadding, 0.0, largest * std::numbers::ln2 + logSum),
                   elementAt(Expr(f, f.buffer("lse")), row, f.b.getF32Type()));
      });
    loop(Expr(f, f.threadIndex()), Expr(f, f.integer(valueDim)), f.geometry.getThreads(), [&](Expr column) {
      Expr total(f, f.number(0));
      for (int64_t warp = 0; warp < warps(); ++warp)
        total = total + weights[warp] * number(column + (warp * valueDim + 2 * warps()));
      Expr mean(f, f.divide(total.get(), sum.get()));
      storeElements({select(isPadding, 0.0, mean)}, rowAt("out", row * valueDim + wide(column)), element);
    });
  }

  KernelFunction &f;
  Type element;
  int64_t headDim, valueDim;
  double scale, softCap;
  int64_t window;
  bool hasSums;
  LaneColumns columns, valueColumns;
};

} // namespace

template <> LogicalResult build<SpecialKernel::attend_cache>(KernelFunction &f, exec::KernelOp kernel) {
  AttendCache(f, kernel).build();
  return success();
}

/// keys[b, head, positions[b, t]] = k[b, t, head], and values likewise; padding is skipped. One warp per (token, head).
template <> LogicalResult build<SpecialKernel::keep_rows>(KernelFunction &f, exec::KernelOp kernel) {
  Type element = typeParameter(kernel, "type");
  int64_t headDim = integerParameter(kernel, "head_dim"), valueDim = integerParameter(kernel, "value_dim", headDim);
  auto width = static_cast<int>(integerParameter(kernel, "width"));
  LaneColumns keyColumns(f, element, headDim, width), valueColumns(f, element, valueDim, width);
  Expr row = Expr(f, f.blockBegin()) + wide(Expr(f, f.warpIndex()));
  Expr heads(f, f.scalar("kv_heads")), context(f, f.scalar("context"));
  when(row < Expr(f, f.extent()), [&] {
    Expr token = row / heads, sequence = token / Expr(f, f.scalar("seq"));
    Expr position =
        wide(loadValue(elementAt(Expr(f, f.buffer("positions")), token, f.b.getI32Type()), f.b.getI32Type()));
    when((position >= 0) & (position < context), [&] {
      Expr to = (sequence * heads + row % heads) * context + position;
      auto keep = [&](StringRef given, StringRef cache, const LaneColumns &columns) {
        columns.forEach([&](int, Expr column) {
          Expr from = elementAt(Expr(f, f.buffer(given)), row * columns.headDim + wide(column), element);
          Expr place = elementAt(Expr(f, f.buffer(cache)), to * columns.headDim + wide(column), element);
          storeElements(loadElements(from, element, width), place, element);
        });
      };
      keep("k", "keys", keyColumns);
      keep("v", "values", valueColumns);
    });
  });
  return success();
}

/// out[b] = x[b, rows[b]], or zeros if the row does not exist. One block per sequence.
template <> LogicalResult build<SpecialKernel::take_row>(KernelFunction &f, exec::KernelOp kernel) {
  Type element = typeParameter(kernel, "type");
  auto width = static_cast<int>(integerParameter(kernel, "width"));
  Expr sequence = wide(Expr(f, f.blockX())), rows(f, f.scalar("b")), columns(f, f.scalar("bytes"));
  Expr row = wide(loadValue(elementAt(Expr(f, f.buffer("rows")), sequence, f.b.getI32Type()), f.b.getI32Type()));
  Expr isRow = (row >= 0) & (row < rows), first = (sequence * rows + select(isRow, row, 0)) * columns;
  loop(wide(Expr(f, f.threadIndex())) * width, columns, f.geometry.getThreads() * width, [&](Expr column) {
    std::vector<Expr> values = loadElements(elementAt(Expr(f, f.buffer("x")), first + column, element), element, width);
    for (Expr &value : values)
      value = select(isRow, value, 0.0);
    storeElements(values, elementAt(Expr(f, f.buffer("row")), sequence * columns + column, element), element);
  });
  return success();
}

} // namespace espalier::codegen::cuda
