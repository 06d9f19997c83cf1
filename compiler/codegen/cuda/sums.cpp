// Sums over fixed blocks in a fixed order: the squared norm in two phases, in f64 across threads; and sums of partial
// sums. Maxima of heads.
#include "compiler/codegen/cuda/special_kernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

Expr toDouble(Expr x) {
  KernelFunction &f = x.function();
  return {f, f.b.create<arith::ExtFOp>(f.b.getF64Type(), x.get())};
}

/// Returns the sum over the threads of a block, on thread 0, by tree reduction through shared memory.
Expr sumOfBlock(Expr x) {
  KernelFunction &f = x.function();
  Expr thread(f, f.threadIndex());
  storeValue(x, sharedAt(f, thread * 8));
  f.barrier();
  for (int64_t half = f.geometry.getThreads() / 2; half > 0; half /= 2) {
    when(thread < half, [&] {
      Expr place = sharedAt(f, thread * 8), other = sharedAt(f, (thread + half) * 8);
      storeValue(loadValue(place, f.b.getF64Type()) + loadValue(other, f.b.getF64Type()), place);
    });
    f.barrier();
  }
  return loadValue(sharedAt(f, Expr(f, f.integer(0))), f.b.getF64Type());
}

} // namespace

/// sums[block] = sum of x^2 over the block's elements. `sums` holds f64 numbers, as pairs of words. The elements per
/// block are a multiple of the width.
template <> LogicalResult build<SpecialKernel::square_blocks>(KernelFunction &f, exec::KernelOp kernel) {
  Expr x(f, f.buffer("x")), elements(f, f.scalar("elements")), perBlock(f, f.scalar("BLOCK_ROWS")),
      block(f, f.blockBegin());
  Type element = typeParameter(kernel, "x");
  Expr thread = wide(Expr(f, f.threadIndex())), begin = block * perBlock, end = atMost(begin + perBlock, elements);
  int width = static_cast<int>(integerParameter(kernel, "width"));
  Expr whole = begin + (end - begin) / width * width;
  Variable sum(toDouble(Expr(f, f.number(0))));
  loop(begin + thread * width, whole, f.geometry.getThreads() * width, [&](Expr i) {
    // Neighbours are added in f32, because a conversion per element would cost more than the memory access.
    Expr squares(f, f.number(0));
    for (Expr v : loadElements(elementAt(x, i, element), element, width))
      squares = squares + v * v;
    sum.set(sum.get() + toDouble(squares));
  });
  when(whole + thread < end, [&] {
    Expr v = loadElements(elementAt(x, whole + thread, element), element, 1).front();
    sum.set(sum.get() + toDouble(v * v));
  });
  Expr total = sumOfBlock(sum.get());
  when(thread == 0, [&] { storeValue(total, elementAt(Expr(f, f.buffer("sums")), block, f.b.getF64Type())); });
  return success();
}

/// out += weight * sum of `sums`, which are f64 numbers, as pairs of words. One block.
template <> LogicalResult build<SpecialKernel::add_squares>(KernelFunction &f, exec::KernelOp kernel) {
  Expr sums(f, f.buffer("sums")), out(f, f.buffer("out")), thread = wide(Expr(f, f.threadIndex()));
  Variable sum(toDouble(Expr(f, f.number(0))));
  loop(thread, Expr(f, f.scalar("blocks")), f.geometry.getThreads(),
       [&](Expr i) { sum.set(sum.get() + loadValue(elementAt(sums, i, f.b.getF64Type()), f.b.getF64Type())); });
  Expr total = sumOfBlock(sum.get()) * realParameter(kernel, "weight");
  when(thread == 0, [&] {
    Expr rounded(f, f.b.create<arith::TruncFOp>(f.b.getF32Type(), total.get()));
    storeValue(loadValue(out, f.b.getF32Type()) + rounded, out);
  });
  return success();
}

/// Sums column `column` of `parts`: warp w adds every eighth part from w on, then the eight sums are added in order.
static void reduceColumn(KernelFunction &f, Expr parts, Expr out, Expr column, exec::KernelOp kernel) {
  constexpr int64_t warps = 8, atOnce = 4;
  Type f32 = f.b.getF32Type(), element = typeParameter(kernel, "out");
  Expr n(f, f.scalar("n")), count(f, f.scalar("part")), isColumn = column < n;
  Expr lane(f, f.laneIndex()), warp(f, f.warpIndex()), zero(f, f.number(0));
  Variable sum(zero);
  loop(wide(warp), count, warps * atOnce, [&](Expr first) {
    std::vector<Variable> loaded;
    for (int64_t i = 0; i < atOnce; ++i) {
      Expr part = first + i * warps;
      loaded.emplace_back(zero);
      when(isColumn & (part < count), [&] { loaded[i].set(loadValue(elementAt(parts, part * n + column, f32), f32)); });
    }
    for (const Variable &value : loaded)
      sum.set(sum.get() + value.get());
  });
  storeValue(sum.get(), sharedAt(f, Expr(f, f.threadIndex()) * 4));
  f.barrier();
  when((warp == 0) & isColumn, [&] {
    Expr place = elementAt(out, column, element), total = zero;
    Destination destination = destinationOf(kernel);
    if (destination != Destination::Overwrite) {
      Variable before(zero);
      Expr adds(f, f.integer(1, 1));
      if (destination == Destination::AddUnlessFirst)
        adds = Expr(f, f.scalar("FIRST")) == 0;
      when(adds, [&] { before.set(loadElements(place, element, 1).front()); });
      total = before.get();
    }
    for (int64_t i = 0; i < warps; ++i)
      total = total + loadValue(sharedAt(f, (lane + i * 32) * 4), f32);
    storeElements({total}, place, element);
  });
}

/// Raises the maximum of one head. A comparison with a NaN is false.
template <> LogicalResult build<SpecialKernel::keep_maxima>(KernelFunction &f, exec::KernelOp) {
  Type f32 = f.b.getF32Type();
  Expr heads(f, f.scalar("kv_heads")), group(f, f.scalar("group")), head(f, f.blockBegin());
  Expr queries = Expr(f, f.scalar("batch")) * Expr(f, f.scalar("seq")), thread(f, f.threadIndex());
  Expr place = elementAt(Expr(f, f.buffer("maxima")), head, f32);
  Variable largest(loadValue(place, f32));
  loop(wide(thread), queries * group, f.geometry.getThreads(), [&](Expr i) {
    Expr index = (i / group * heads + head) * group + i % group;
    Expr x = loadValue(elementAt(Expr(f, f.buffer("largest")), index, f32), f32);
    largest.set(select(x > largest.get(), x, largest.get()));
  });
  int warps = static_cast<int>(f.geometry.getThreads() / 32);
  Expr ofBlock(f, f.reduceWarps(largest.get().get(), Reduction::Max, warps, f.shared()));
  when(thread == 0, [&] { storeValue(ofBlock, place); });
  return success();
}

/// out = or += the sum of parts, for several sums.
template <> LogicalResult build<SpecialKernel::reduce_parts>(KernelFunction &f, exec::KernelOp kernel) {
  auto sums = static_cast<unsigned>(integerParameter(kernel, "buffers") / 2);
  Expr column = Expr(f, f.blockBegin()) + wide(Expr(f, f.laneIndex())), which(f, f.blockY());
  for (unsigned sum = 0; sum < sums; ++sum)
    when(which == int64_t(sum),
         [&] { reduceColumn(f, Expr(f, f.buffer("parts", sum)), Expr(f, f.buffer("out", sum)), column, kernel); });
  return success();
}

} // namespace espalier::codegen::cuda
