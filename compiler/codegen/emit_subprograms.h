// The last step of code generation: programs and kernels as messages of the run plan.
#pragma once

#include "runtime/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

namespace espalier {

/// Adds the passes from local functions to programs: fuse-kernels, overlap-communication, lower-to-exec,
/// plan-buffers.
void addCodegenPasses(mlir::OpPassManager &passes);
/// The first two of them: groups ops into kernels, in the order in which they run.
void addFusionPasses(mlir::OpPassManager &passes);

/// Fills `subprograms` (one per program, named like its function), `kernels`, `objects` and `locations` of `plan`, and
/// adds to its values, groups and transfers; `queues` must be there. The module must have been through the passes
/// above. Without `emitObjects` no machine code is made: for questions of size. Errors are reported on the module's
/// ops.
mlir::LogicalResult emitSubprograms(mlir::ModuleOp module, rt::pb::Plan &plan, bool emitObjects = true);

} // namespace espalier
