#include "compiler/codegen/cuda/emit_cuda.h"
#include "compiler/codegen/llvm_pipeline.h"
#include "compiler/passes.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_PRINTPTX
#include "compiler/passes.h.inc"

namespace {

struct PrintPtxPass : impl::PrintPtxBase<PrintPtxPass> {
  void getDependentDialects(DialectRegistry &registry) const override { codegen::addDialects(registry); }
  void runOnOperation() override {
    auto text = codegen::cuda::emitPtx(getOperation());
    if (failed(text))
      return signalPassFailure();
    llvm::outs() << *text;
    llvm::outs().flush();
  }
};

} // namespace
} // namespace espalier
