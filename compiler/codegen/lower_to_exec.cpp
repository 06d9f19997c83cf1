// The pass that turns functions of fused groups, library ops and collectives into programs over buffers.
#include "compiler/codegen/program_builder.h"
#include "compiler/passes.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_LOWERTOEXEC
#include "compiler/passes.h.inc"

namespace {

struct LowerToExecPass : impl::LowerToExecBase<LowerToExecPass> {
  void runOnOperation() override {
    codegen::KernelTable kernels(getOperation());
    codegen::SegmentLayout layout;
    SmallVector<func::FuncOp> functions(getOperation().getOps<func::FuncOp>());
    for (func::FuncOp function : functions)
      if (!function.isDeclaration() && failed(codegen::ProgramBuilder(function, kernels, layout).build()))
        return signalPassFailure();
  }
};

} // namespace
} // namespace espalier
