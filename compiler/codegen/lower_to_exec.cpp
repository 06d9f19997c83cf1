// Defines the pass that lowers functions of fused groups, library ops and collectives to programs over buffers.
#include "compiler/codegen/program_builder.h"
#include "compiler/passes.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_LOWERTOEXEC
#include "compiler/passes.h.inc"

namespace {

struct LowerToExecPass : impl::LowerToExecBase<LowerToExecPass> {
  void runOnOperation() override {
    if (failed(codegen::lowerToExec(getOperation(), /*sources=*/nullptr)))
      signalPassFailure();
  }
};

} // namespace

LogicalResult codegen::lowerToExec(ModuleOp module, SourcePositions *sources) {
  KernelTable kernels(module);
  KeptShapes kept;
  SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
  for (func::FuncOp function : functions)
    if (!function.isDeclaration() && failed(ProgramBuilder(function, kernels, kept, sources).build()))
      return failure();
  return success();
}

} // namespace espalier
