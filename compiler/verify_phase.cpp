#include "compiler/verify_phase.h"

#include "mlir/IR/Operation.h"

using namespace mlir;

namespace espalier {

namespace {

/// One row per phase: the dialects that may remain, and the ops that must not.
struct Border {
  const char *phase;
  std::vector<StringRef> dialects;
  std::vector<StringRef> gone;
};

const std::vector<Border> &borders() {
  static const std::vector<Border> rows = {
      {"model", {"builtin", "func", "model"}, {"model.cotangent"}},
      {"joint", {"builtin", "func", "model"}, {}},
      {"partition", {"builtin", "func", "model", "dist"}, {"dist.reshard"}},
      {"phases",
       {"builtin", "func", "model", "dist", "exec"},
       {"dist.reshard", "model.cotangent", "exec.product", "exec.fused", "exec.program"}},
      {"exec", {"builtin", "model", "exec"}, {"exec.product", "exec.fused"}},
  };
  return rows;
}

} // namespace

LogicalResult verifyPhase(ModuleOp module, StringRef phase) {
  for (const Border &border : borders()) {
    if (phase != border.phase)
      continue;
    WalkResult result = module.walk([&](Operation *op) {
      bool isLegal = llvm::is_contained(border.dialects, op->getName().getDialectNamespace()) &&
                     !llvm::is_contained(border.gone, op->getName().getStringRef());
      if (isLegal)
        return WalkResult::advance();
      op->emitOpError("should not remain after phase '") << phase << "'";
      return WalkResult::interrupt();
    });
    return failure(result.wasInterrupted());
  }
  return success();
}

} // namespace espalier
