// The stages of `run_mode: predict`: entries `prefill` and `decode` over caches that stay on the device. Each takes new
// tokens of every sequence, `Settings.prompt_tokens` or one, and leaves logits of one token of each with the host,
// which chooses the next (runtime/README.md, section 5.9). A stage has one list per entry: inputs in, the stream in,
// RUN, the stream or the logits out.
#pragma once

#include "compiler/codegen/plan_tables.h"
#include "compiler/import/build_model.h"
#include "compiler/pipeline/lay_out_regions.h"
#include "compiler/pipeline/segment_layout.h"
#include "planner/plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace espalier {

/// Prefill and decode of a model, in the order of the plan's entries.
std::vector<GenerationPhase> generationPhases(const ModelDescription &model);

/// Transfers of one entry, by number in the plan; -1 where no rank has them.
struct PhaseTransfers {
  int64_t inputs = -1;       ///< from the host
  int64_t out = -1, in = -1; ///< streams between stages
  int64_t logits = -1;       ///< to the host
};

/// What all stages of a plan for generation share.
struct GenerationInputs {
  const RunConfig &run;
  const planner::Plan &plan;
  const std::vector<SegmentLayout> &segments;
  const RegionSizes &regions;
  const std::vector<PhaseTransfers> &transfers; ///< by entry
};

/// Lists the queues that occur, and the entries. `module` has its programs.
void addGenerationNames(mlir::ModuleOp module, const planner::Plan &plan, rt::pb::Plan &out);

/// Adds the module's values, and the transfers of each entry, named like "tok.prefill".
void addGenerationTransfers(mlir::ModuleOp module, const RegionSizes &regions, const planner::Plan &plan,
                            PlanTables &tables, const rt::pb::Plan &out);

/// Adds the stages without their lists to `out`, which has everything else.
void assignGeneration(const GenerationInputs &inputs, rt::pb::Plan &out);
/// Adds the lists to the stages that assignGeneration made.
void expandGeneration(const GenerationInputs &inputs, rt::pb::Plan &out);

} // namespace espalier
