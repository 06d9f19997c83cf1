#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "runtime/plan.pb.h"
namespace espalier {
inline void addCodegenPasses(mlir::OpPassManager &) {}
inline mlir::LogicalResult emitSubprograms(mlir::ModuleOp, rt::pb::Plan &, bool) { return mlir::success(); }
}
