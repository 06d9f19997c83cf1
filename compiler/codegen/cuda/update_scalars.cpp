// Computes the gradient scale and whether the optimizer applies the step, from the all-reduced sums. Same arithmetic in
// f64, with the same bits, as runtime/kernels/update_scalars.cpp. One thread.
#include "compiler/codegen/cuda/special_kernels.h"

namespace espalier::codegen::cuda {

template <> mlir::LogicalResult build<SpecialKernel::update_scalars>(KernelFunction &f, exec::KernelOp kernel) {
  mlir::Type f32 = f.b.getF32Type(), f64 = f.b.getF64Type();
  double limit = realParameter(kernel, "max_grad_norm");
  auto slot = [&](const char *operand) { return loadValue({f, f.buffer(operand)}, f32); };
  auto toDouble = [&](Expr x) { return Expr(f, f.b.create<mlir::LLVM::FPExtOp>(f64, x.get())); };
  auto isFinite = [&](Expr x) {
    Expr bits(f, f.b.create<mlir::LLVM::BitcastOp>(f.b.getI32Type(), x.get()));
    return (bits & 0x7f800000) != 0x7f800000;
  };
  when(Expr(f, f.threadIndex()) == 0, [&] {
    Expr loss = slot("loss_sum"), tokens = slot("token_count"), squares = slot("squared_norm"),
         scale = slot("loss_scale");
    Expr applies = isFinite(loss) & isFinite(squares) & (tokens > 0);
    Expr tokensAndScale = toDouble(tokens) * toDouble(scale);
    Expr root(f, f.intrinsic("llvm.nvvm.sqrt.rn.d", f64, toDouble(squares).get()));
    if (kernel.getParameters()->contains("norm_limit")) {
      Expr most = slot("norm_limit");
      applies = applies & ((most <= 0) | (root / tokensAndScale <= toDouble(most)));
    }
    Expr clip(f, Expr(1).as(f, f64));
    if (limit > 0)
      clip = atMost(clip, Expr(f, Expr(limit).as(f, f64)) / (root / tokensAndScale + 1e-6));
    Expr factor(f, f.b.create<mlir::LLVM::FPTruncOp>(f32, (clip / tokensAndScale).get()));
    storeValue(select(applies, factor, 0), {f, f.buffer("gradient_scale")});
    storeValue(select(applies, Expr(f, f.number(1)), 0), {f, f.buffer("apply")});
  });
  return mlir::success();
}

} // namespace espalier::codegen::cuda
