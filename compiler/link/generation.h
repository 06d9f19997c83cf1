// Builds the stages of `run_mode: predict`: the entries `prefill` and `decode` over caches that stay on the device.
// Each entry takes `Settings.prompt_tokens` new tokens or one new token of every sequence. It returns the logits of one
// token per sequence to the host, which chooses the next token (runtime/README.md, section 5.9). A stage has one
// schedule per entry: it receives inputs and stream, executes a RUN, and sends the stream or the logits.
#pragma once

#include "compiler/import/model/build_model.h"
#include "compiler/import/run/run_config.h"
#include "compiler/layout/lay_out_regions.h"
#include "compiler/link/plan_tables.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Returns the prefill and decode phases of a model, in the order of the plan's entries.
std::vector<GenerationPhase> generationPhases(const ModelDescription &model);

/// The transfers of one entry, as indices into the plan's transfers; -1 if no rank has the transfer.
struct PhaseTransfers {
  int64_t inputs = -1;       ///< from the host
  int64_t out = -1, in = -1; ///< streams between stages
  int64_t logits = -1;       ///< to the host
};

/// The inputs that all stages of a generation plan have in common.
struct GenerationInputs {
  const std::vector<SegmentRun> &runs; ///< the segments of the model in order
  const planner::Plan &plan;
  mlir::ModuleOp module;
  const RegionSizes &regions;
  const std::vector<PhaseTransfers> &transfers; ///< by entry
};

/// Lists the queues that are in use and the entries. `module` must already contain its programs.
void addGenerationNames(mlir::ModuleOp module, const planner::Plan &plan, rt::pb::Plan &out);

/// Adds the module's values and the transfers of each entry, and returns the transfers by entry. A transfer's name ends
/// with its phase, as in "tok.prefill".
std::vector<PhaseTransfers> addGenerationTransfers(mlir::ModuleOp module, const RegionSizes &regions,
                                                   const planner::Plan &plan, PlanTables &tables,
                                                   const rt::pb::Plan &out);

/// Adds the stages to `out`. All other tables of `out` must be complete.
void buildGenerationStages(const GenerationInputs &inputs, rt::pb::Plan &out);

} // namespace espalier
