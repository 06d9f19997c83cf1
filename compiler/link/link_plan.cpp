#include "compiler/link/link_plan.h"

#include "compiler/attributes/batch_ramp.h"
#include "compiler/attributes/run_attributes.h"
#include "compiler/link/build_stages.h"
#include "compiler/link/emit_programs.h"
#include "compiler/link/generation.h"
#include "compiler/link/plan_text.h"
#include "compiler/passes.h"
#include "planner/model/schedule.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_LINKPLAN
#include "compiler/passes.h.inc"

namespace {

class Linker {
public:
  Linker(ModuleOp module, planner::Plan split, rt::pb::Plan &out)
      : module(module), split(std::move(split)), runs(readRuns(module)), regions(readRegions(module)), out(out) {}

  LogicalResult link() {
    if (failed(check()))
      return failure();
    for (uint32_t role = 0; role <= exec::getMaxEnumValForRole(); ++role)
      out.add_roles(exec::stringifyRole(static_cast<exec::Role>(role)).str());
    for (uint32_t region = 0; region <= exec::getMaxEnumValForRegion(); ++region)
      out.add_regions(exec::stringifyRegion(static_cast<exec::Region>(region)).str());
    exec::generates(module) ? linkGeneration() : linkStep();
    addCommunicators(out);
    return success();
  }

private:
  /// Checks that the module has everything that stages are built from.
  LogicalResult check() {
    size_t chunks = static_cast<size_t>(split.pp) * planner::chunksOf(split.schedule, split.virtualStages);
    if (split.stages.size() != chunks)
      return module.emitError("needs exec.plan with a stage for each of ")
             << chunks << " chunks, got " << split.stages.size();
    if (!exec::optimizerAttr.of(module))
      return module.emitError("needs exec.optimizer, which the phase model sets");
    if (runs.size() < 2)
      return module.emitError("needs model.runs with a first and a last segment, got ") << runs.size();
    for (const SegmentRun &run : runs)
      if (!exec::findSegment(module, run.kind))
        return module.emitError("needs an exec.segment of kind '") << run.kind << "', which form-buckets lists";
    return success();
  }

  /// Links a plan that trains or evaluates.
  void linkStep() {
    bool hasBackward = exec::trains(module);
    std::vector<int64_t> ramp = hasBackward ? readRamp(module) : std::vector<int64_t>();
    addNames(module, regions, split, out);
    PlanTables tables(out);
    StepTransfers transfers = addStepTransfers(module, regions, split, tables);
    std::vector<BucketTransfers> buckets = addBuckets(module, hasBackward, tables, out);
    emitPrograms(module, out);
    buildStages({runs, split, module, regions, buckets, transfers, ramp, hasBackward}, out);
  }

  void linkGeneration() {
    addGenerationNames(module, split, out);
    PlanTables tables(out);
    std::vector<PhaseTransfers> transfers = addGenerationTransfers(module, regions, split, tables, out);
    addBuckets(module, /*trains=*/false, tables, out);
    emitPrograms(module, out);
    buildGenerationStages({runs, split, module, regions, transfers}, out);
  }

  ModuleOp module;
  planner::Plan split;
  std::vector<SegmentRun> runs;
  RegionSizes regions;
  rt::pb::Plan &out;
};

struct LinkPlanPass : impl::LinkPlanBase<LinkPlanPass> {
  void runOnOperation() override {
    rt::pb::Plan plan;
    if (failed(linkPlan(getOperation(), plan)))
      return signalPassFailure();
    llvm::outs() << planText(plan);
    llvm::outs().flush();
  }
};

} // namespace

LogicalResult linkPlan(ModuleOp module, rt::pb::Plan &plan) {
  FailureOr<planner::Plan> split = readPlan(module);
  return failed(split) ? failure() : Linker(module, std::move(*split), plan).link();
}

} // namespace espalier
