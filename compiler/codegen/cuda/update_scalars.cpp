// Computes the gradient scale and whether the optimizer applies the step, from the all-reduced sums. Same arithmetic in
// f64, with the same bits, as runtime/kernels/update_scalars.cpp. One thread.
#include "compiler/codegen/cuda/special_kernels.h"

namespace espalier::codegen::cuda {

/// Buffers, one f32 each: loss sum, token count, squared norm, loss scale; gradient scale, apply.
mlir::LogicalResult buildUpdateScalars(KernelFunction &f, exec::KernelOp kernel) {
  mlir::Type f32 = f.b.getF32Type(), f64 = f.b.getF64Type();
  double limit = realParameter(kernel, "max_grad_norm");
  auto slot = [&](unsigned buffer) { return loadValue({f, f.buffer(buffer)}, f32); };
  auto toDouble = [&](Expr x) { return Expr(f, f.b.create<mlir::LLVM::FPExtOp>(f64, x.get())); };
  auto isFinite = [&](Expr x) {
    Expr bits(f, f.b.create<mlir::LLVM::BitcastOp>(f.b.getI32Type(), x.get()));
    return (bits & 0x7f800000) != 0x7f800000;
  };
  when(Expr(f, f.threadIndex()) == 0, [&] {
    Expr loss = slot(0), tokens = slot(1), squares = slot(2), scale = slot(3);
    Expr applies = isFinite(loss) & isFinite(squares) & (tokens > 0);
    Expr tokensAndScale = toDouble(tokens) * toDouble(scale);
    Expr root(f, f.intrinsic("llvm.nvvm.sqrt.rn.d", f64, toDouble(squares).get()));
    Expr clip(f, Expr(1).as(f, f64));
    if (limit > 0)
      clip = atMost(clip, Expr(f, Expr(limit).as(f, f64)) / (root / tokensAndScale + 1e-6));
    Expr factor(f, f.b.create<mlir::LLVM::FPTruncOp>(f32, (clip / tokensAndScale).get()));
    storeValue(select(applies, factor, 0), {f, f.buffer(4)});
    storeValue(select(applies, Expr(f, f.number(1)), 0), {f, f.buffer(5)});
  });
  return mlir::success();
}

} // namespace espalier::codegen::cuda
