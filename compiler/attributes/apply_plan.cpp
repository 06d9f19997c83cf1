#include "compiler/attributes/apply_plan.h"

#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "format/axes.h"
#include "planner/model/schedule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <set>

using namespace mlir;

namespace espalier {

ModelSizes sizesUnder(const planner::Plan &plan) {
  // Matrix products of odd sizes are slow (planner/model/cost.h). Megatron also pads to 128 elements per vocabulary
  // shard.
  int64_t parts = plan.vocabParallel ? plan.tp : 1;
  return {plan.microBatchSize * plan.replicas(), 128 * parts};
}

namespace {

/// Returns whether the function is that of a repeated layer: neither the first segment nor the last.
bool isRepeated(func::FuncOp function, const ModelDescription &model) {
  return llvm::any_of(model.runs, [&](const SegmentRun &run) {
    return &run != &model.runs.front() && &run != &model.runs.back() && run.kind == function.getName();
  });
}

} // namespace

void applyPlan(ModuleOp module, const planner::Plan &plan, const ModelDescription &model) {
  Builder b(module.getContext());
  SmallVector<StringAttr> axes;
  SmallVector<int64_t> sizes;
  for (auto [axis, size] : llvm::zip_equal(meshAxes, axisMembers(plan))) {
    if (StringRef(axis) == "ep" && !model.hasExperts())
      continue;
    bool isSplit = StringRef(axis) == "dp" && plan.zeroReplicas() > 1;
    if (isSplit) {
      axes.push_back(b.getStringAttr(replicateAxis));
      sizes.push_back(plan.zeroReplicas());
    }
    axes.push_back(b.getStringAttr(axis));
    sizes.push_back(isSplit ? plan.zeroRanks() : *size);
  }
  dist::meshAttr.set(module, dist::MeshAttr::get(module.getContext(), axes, sizes));

  SmallVector<StringRef> sampleAxes;
  if (plan.zeroReplicas() > 1)
    sampleAxes.push_back(replicateAxis);
  sampleAxes.push_back("dp");
  if (model.hasExperts())
    sampleAxes.push_back("ep");
  SmallVector<NamedAttribute> dims = {b.getNamedAttr("batch", b.getStrArrayAttr(sampleAxes))};
  if (model.hasExperts()) {
    SmallVector<StringRef> expertAxes;
    if (!plan.splitsExperts)
      expertAxes.push_back("tp");
    if (plan.expertsOverContext)
      expertAxes.push_back("cp");
    expertAxes.push_back("ep");
    dims.push_back(b.getNamedAttr("expert", b.getStrArrayAttr(expertAxes)));
  }
  for (const char *dim : {"seq", "capacity"})
    if (StringRef(dim) == "seq" || model.hasExperts())
      dims.push_back(b.getNamedAttr(dim, b.getStrArrayAttr({"cp"})));
  for (const std::string &dim : model.tensorParallelDims())
    if (plan.splitsExperts || !model.isOfExperts(dim))
      dims.push_back(b.getNamedAttr(dim, b.getStrArrayAttr({"tp"})));
  if (plan.vocabParallel)
    dims.push_back(b.getNamedAttr("vocab", b.getStrArrayAttr({"tp"})));
  dist::dimsAttr.set(module, b.getDictionaryAttr(dims));
  if (plan.sequenceParallel)
    dist::sequenceParallelAttr.set(module);
  if (plan.hasTwoRuns())
    dist::zigzagAttr.set(module);
  if (plan.keepTensorParallelResults)
    dist::keepCollectivesAttr.set(module);
  // Sequence parallelism already shards the stream everywhere.
  if (plan.slicesInputs())
    dist::sliceInputsAttr.set(module, b.getStrArrayAttr({"tp"}));

  std::set<planner::Recompute> policies;
  for (const planner::StagePlan &stage : plan.stages)
    policies.insert(stage.recompute.begin(), stage.recompute.end());
  for (auto function : module.getOps<func::FuncOp>()) {
    bool repeats = isRepeated(function, model);
    SmallVector<StringRef> names;
    for (planner::Recompute policy : policies)
      names.push_back(recomputeName(policy));
    if (!repeats || names.empty())
      names = {"none"};
    model::recomputeAttr.set(function, b.getStrArrayAttr(names));
  }
  if (planner::splitsBackward(plan.schedule))
    splitBackward(module, model);
}

// Splitting the backward pass does not pay for embedding and head. They are at the ends of the pipeline, where nothing
// waits for the gradients of their inputs, or where these gradients cost as much as those of the weights.
void splitBackward(ModuleOp module, const ModelDescription &model) {
  for (auto function : module.getOps<func::FuncOp>())
    if (isRepeated(function, model))
      model::splitBackwardAttr.set(function);
}

} // namespace espalier
