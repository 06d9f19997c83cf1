// Emits the programs and kernels of an exec module as messages of the run plan.
#pragma once

#include "format/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Fills `subprograms` (one per program, with the name of its function), `kernels` and `locations` of `plan`. Also adds
/// to its values, groups, dims and transfers; `queues` must already be filled. The module must have run the passes of
/// addCodegenPasses.
void emitPrograms(mlir::ModuleOp module, rt::pb::Plan &plan);

} // namespace espalier
