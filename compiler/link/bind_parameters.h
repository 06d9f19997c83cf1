// Adds layer calls with their buckets to a stage, and allocates what the buckets keep: parameters, gradients and
// optimizer state.
#pragma once

#include "compiler/layout/stage_calls.h"
#include "compiler/link/place_builder.h"
#include "dialects/exec/dialect.h"

#include "format/plan.pb.h"

namespace espalier {

/// Adds a layer call with its buckets. The call has neither programs nor bindings yet.
rt::pb::Call &addLayerCall(const LayerCall &from, mlir::ModuleOp module, rt::pb::Stage &stage);

/// Adds the call `step`, whose programs run once per step, without programs and bindings. It belongs to no layer.
rt::pb::Call &addStepCall(rt::pb::Stage &stage);

/// Returns whether a call is a layer call. The call `step` is none.
inline bool isLayerCall(const rt::pb::Call &call) { return call.layer() >= 0; }

/// Returns the segment that a layer call belongs to. The name of the call starts with the segment's kind.
exec::SegmentOp segmentOf(const rt::pb::Call &call, mlir::ModuleOp module);

/// Allocates the regions of parameters, and of gradients and optimizer state if the plan trains, and binds them to the
/// layer calls of a stage. The first and the last layer call use one allocation if they have tied parameters. Gathered
/// buffers have one allocation per segment kind, in every slot of the live range that `wholeLifetime` returns.
void bindParameters(mlir::ModuleOp module, bool trains,
                    llvm::function_ref<uint32_t(const rt::pb::Call &)> wholeLifetime, rt::pb::Stage &stage,
                    PlaceBuilder &places);

} // namespace espalier
