// Holds a stage under construction and the facts that the steps of its construction share.
#pragma once

#include "compiler/import/model/model_description.h"
#include "compiler/layout/lay_out_regions.h"
#include "compiler/link/add_buckets.h"
#include "compiler/link/add_transfers.h"
#include "compiler/link/bind_parameters.h"
#include "compiler/link/expand_schedule.h"
#include "compiler/link/program_extents.h"
#include "planner/plan.h"

#include "format/plan.pb.h"

namespace espalier {

/// The inputs that all stages of one plan have in common.
struct StageInputs {
  const std::vector<SegmentRun> &runs; ///< the segments of the model in order
  const planner::Plan &plan;
  mlir::ModuleOp module;
  const RegionSizes &regions;
  const std::vector<BucketTransfers> &buckets; ///< by bucket number
  const StepTransfers &transfers;
  const std::vector<int64_t> &ramp; ///< micro-batches of the further training entries
  bool trains;                      ///< if false, the plan only evaluates: it has no gradients and no optimizer state
};

/// A stage under construction.
struct StageDraft {
  const StageInputs &in;
  const rt::pb::Plan &tables; ///< the plan's tables except the stages
  const ProgramExtents &extents;
  llvm::ArrayRef<std::vector<LayerCall>> chunks; ///< layer calls by chunk
  const StageList &list;                         ///< the schedule of a training step, or of an evaluation
  rt::pb::Stage &stage;

  uint32_t firstLifetime = 1; ///< live range of the stage for the first live range of `list`
  uint32_t staged = 0;        ///< live range of host staging buffers; 0 if the stage takes no inputs
  uint32_t wholeLayers = 0;   ///< live range of gathered layers; 0 if layers are not gathered

  /// Returns the stage's live range for one of `list`, or the resident live range if the chunk has none of this kind.
  uint32_t lifetimeOf(size_t chunk, LifetimeKind kind) const {
    int lifetime = list.lifetimeOf(static_cast<int>(chunk), kind);
    return lifetime < 0 ? 0 : firstLifetime + static_cast<uint32_t>(lifetime);
  }

  /// Returns whether a call is a layer call of a repeated layer of the model: neither to the first segment nor to the
  /// last.
  bool isRepeated(const rt::pb::Call &call) const {
    llvm::StringRef kind = llvm::StringRef(call.name()).split('.').first;
    return kind != in.runs.front().kind && kind != in.runs.back().kind && isLayerCall(call);
  }

  /// Returns the index of a chunk's first call among the stage's calls.
  int firstCall(size_t chunk) const { return static_cast<int>(stage.chunks(static_cast<int>(chunk)).first_call()); }
};

} // namespace espalier
