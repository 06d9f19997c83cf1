// The last step of code generation: emits programs and kernels as messages of the run plan.
#pragma once

#include "runtime/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

namespace espalier {

/// Adds the passes that lower local functions to programs: those of addFusionPasses, then lower-to-exec and
/// plan-buffers.
void addCodegenPasses(mlir::OpPassManager &passes);
/// Adds the passes that group ops into kernels: cse, fold-epilogues, fuse-kernels and overlap-communication.
void addFusionPasses(mlir::OpPassManager &passes);

/// Fills `subprograms` (one per program, with the name of its function), `kernels`, `objects` and `locations` of
/// `plan`. Also adds to its values, groups and transfers; `queues` must already be filled. The module must have run the
/// passes above. With `emitObjects` = false no machine code is generated, which is enough to determine sizes. Errors
/// are reported on the module's ops.
mlir::LogicalResult emitSubprograms(mlir::ModuleOp module, rt::pb::Plan &plan, bool emitObjects = true);

} // namespace espalier
