// Defines the passes assign-stages and expand-schedule. They read the module into the inputs of assign_stages.h and
// generation.h, and write the resulting stages and schedules as ops.
#include "compiler/link/assign_stages.h"
#include "compiler/link/emit_programs.h"
#include "compiler/link/emit_tables.h"
#include "compiler/link/generation.h"
#include "compiler/link/write_tables.h"
#include "compiler/passes.h"
#include "compiler/plan/run_attributes.h"
#include "planner/model/schedule.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_ASSIGNSTAGES
#define GEN_PASS_DEF_EXPANDSCHEDULE
#include "compiler/passes.h.inc"

namespace {

/// Reads the tables and programs of a module as messages, together with the other inputs of stages.
class StageReader {
public:
  LogicalResult read(ModuleOp module) {
    isGeneration = generates(module);
    hasBackward = trains(module);
    split = readPlan(module);
    run.model.runs = readRuns(module);
    segments = readSegments(module);
    regions = readRegions(module);
    if (failed(check(module)))
      return failure();
    emitTables(module, plan);
    PlanTables tables(plan);
    emitBuckets(segments, hasBackward, tables, plan);
    for (auto [index, transfer] : llvm::enumerate(plan.transfers()))
      numbers.try_emplace(transfer.name(), index);
    isGeneration ? findPhases() : findTransfers();
    return emitSubprograms(module, plan, /*emitObjects=*/false);
  }

  int stages() const { return split.pp; }

  void assign() { isGeneration ? assignGeneration(generationInputs(), plan) : assignStages(inputs(), plan); }
  void expand() { isGeneration ? expandGeneration(generationInputs(), plan) : expandStages(inputs(), plan); }

  rt::pb::Plan plan;

private:
  StageInputs inputs() const { return {run, split, segments, regions, buckets, transfers, hasBackward}; }
  GenerationInputs generationInputs() const { return {run, split, segments, regions, phases}; }

  /// Checks that earlier passes have listed all tables that stages are built from.
  LogicalResult check(ModuleOp module) const {
    size_t chunks = static_cast<size_t>(split.pp) * planner::chunksOf(split.schedule, split.virtualStages);
    if (split.stages.size() != chunks)
      return module.emitError("needs exec.plan with a stage for each of ")
             << chunks << " chunks, got " << split.stages.size();
    if (run.model.runs.size() < 2)
      return module.emitError("needs model.runs with a first and a last segment, got ") << run.model.runs.size();
    for (const SegmentRun &part : run.model.runs)
      if (llvm::none_of(segments, [&](const SegmentLayout &segment) { return segment.kind == part.kind; }))
        return module.emitError("needs an exec.segment of kind '") << part.kind << "', which form-buckets lists";
    if (module.getOps<exec::EntryOp>().empty() || module.getOps<exec::TransferOp>().empty())
      return module.emitError("needs entries and transfers, which build-transfers lists");
    return success();
  }

  int64_t find(const std::string &name) const {
    auto found = numbers.find(name);
    return found == numbers.end() ? -1 : int64_t{found->second};
  }

  void findPhases() {
    for (const rt::pb::Entry &entry : plan.entries()) {
      auto findHere = [&](const char *name) { return find(name + ("." + entry.name())); };
      phases.push_back({findHere("tok"), findHere("out"), findHere("in"), findHere("logits")});
    }
  }

  /// Finds the transfers by the names that build-transfers gives them.
  void findTransfers() {
    auto streams = [&](const std::string &suffix) {
      return StreamTransfers{find("out" + suffix), find("in" + suffix), find("din" + suffix), find("dout" + suffix)};
    };
    transfers.forth = streams("");
    transfers.back = streams(".back");
    transfers.inputs = find("tok");
    transfers.set = find("set");
    transfers.metrics = find("metrics");
    transfers.agree = find("agree");
    for (const SegmentLayout &segment : segments)
      for (const SegmentBucket &bucket : segment.buckets) {
        if (bucket.number < buckets.size()) // a tied bucket uses its owner's transfers
          continue;
        BucketTransfers &made = buckets.emplace_back();
        for (const std::string &sum : bucket.sums)
          made.sums.push_back(static_cast<uint32_t>(find(sum)));
        made.scatter = bucket.scatter.empty() ? -1 : find(bucket.scatter);
        made.gather = bucket.gather.empty() ? -1 : find(bucket.gather);
      }
  }

  RunConfig run; ///< only its segment runs are set
  planner::Plan split;
  std::vector<SegmentLayout> segments;
  RegionSizes regions;
  std::vector<BucketTransfers> buckets;
  StepTransfers transfers;
  std::vector<PhaseTransfers> phases; ///< by entry
  bool isGeneration = false;          ///< if true, `phases` lists the transfers; else `transfers` and `buckets` do
  bool hasBackward = false;
  std::map<std::string, uint32_t> numbers; ///< transfer indices by name
};

struct AssignStagesPass : impl::AssignStagesBase<AssignStagesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    StageReader reader;
    if (failed(reader.read(module)))
      return signalPassFailure();
    reader.assign();
    OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
    for (const rt::pb::Stage &stage : reader.plan.stages())
      writeStage(reader.plan, stage, b);
  }
};

struct ExpandSchedulePass : impl::ExpandScheduleBase<ExpandSchedulePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    StageReader reader;
    if (failed(reader.read(module)) || failed(emitStages(module, reader.plan)))
      return signalPassFailure();
    auto stages = module.getOps<exec::StageOp>();
    if (reader.plan.stages_size() != reader.stages()) {
      module.emitError("needs ") << reader.stages() << " stages, which assign-stages makes, got "
                                 << reader.plan.stages_size();
      return signalPassFailure();
    }
    reader.expand();
    for (auto [op, stage] : llvm::zip_equal(stages, reader.plan.stages())) {
      OpBuilder b = OpBuilder::atBlockEnd(&op.getBody().front());
      writeLists(reader.plan, stage, b);
    }
  }
};

} // namespace
} // namespace espalier
