// Holds what the parts of an instruction stream's construction share.
#pragma once

#include "compiler/link/action_writer.h"
#include "compiler/link/add_buckets.h"
#include "compiler/link/add_transfers.h"
#include "compiler/link/expand_schedule.h"
#include "compiler/link/gradient_terms.h"

#include "format/plan.pb.h"

namespace espalier {

/// The tables that instruction streams of all stages read.
struct ListInputs {
  const StepTransfers &transfers;
  const std::vector<BucketTransfers> &buckets;         ///< by bucket number
  const std::vector<std::vector<GradientTerm>> &terms; ///< by program
  const rt::pb::Plan &plan;                            ///< must already contain its buckets
  bool returns = false; ///< whether second chunks send their stream to the previous stage
};

/// One entry of one stage whose instruction stream is being built.
struct ListContext {
  const ListInputs &in;
  const StageList &list;
  const rt::pb::Stage &stage;
  ActionWriter &writer;

  /// Returns the index of the chunk that holds the call `step`, and of this call.
  int stepChunk() const { return stage.chunks_size() - 1; }
  uint32_t stepCall() const { return stage.chunks(stepChunk()).first_call(); }

  const rt::pb::Call &call(uint32_t index) const { return stage.calls(static_cast<int>(index)); }

  /// Returns the role of the programs that an action of the schedule runs in a training step.
  static exec::Role roleOf(const planner::Action &action) {
    switch (action.kind) {
    case planner::ActionKind::Forward:
      return exec::Role::Forward;
    case planner::ActionKind::Backward:
      return exec::Role::Backward;
    case planner::ActionKind::Weight:
      break;
    }
    return exec::Role::Weight;
  }

  /// Returns the gradients that a layer call accumulates into.
  const std::vector<GradientTerm> &termsOf(uint32_t index, exec::Role role) const {
    static const std::vector<GradientTerm> none;
    uint32_t program = call(index).programs(static_cast<int>(role));
    return program == 0 ? none : in.terms[program - 1];
  }

  /// Returns the layer of the layer call that owns a bucket of this one.
  uint32_t ownerOf(uint32_t index, uint32_t bucket) const {
    auto isUse = [&](const rt::pb::BucketUse &use) { return use.bucket() == bucket; };
    return llvm::find_if(call(index).buckets(), isUse)->owner();
  }

  /// Returns whether several stages hold the bucket.
  bool isTied(uint32_t bucket) const { return in.plan.buckets(static_cast<int>(bucket)).holders_size() > 0; }

  /// Returns whether each micro-batch's gradient of the bucket is scattered, so that ranks accumulate shards.
  bool isScattered(uint32_t bucket) const { return in.buckets[bucket].scatter >= 0; }

  /// Calls `visit(chunk, call)` for each layer call of the stage.
  template <typename Visit> void forEachCall(Visit visit) const {
    for (int chunk = 0; chunk < stepChunk(); ++chunk)
      for (uint32_t i = 0; i < stage.chunks(chunk).calls(); ++i)
        visit(chunk, stage.chunks(chunk).first_call() + i);
  }
};

} // namespace espalier
