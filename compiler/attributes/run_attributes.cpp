#include "compiler/attributes/run_attributes.h"

#include "compiler/attributes/batch_ramp.h"
#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"
#include "format/axes.h"
#include "planner/model/schedule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

namespace {

exec::PlanAttr planAttribute(MLIRContext *context, const planner::Plan &plan) {
  Builder b(context);
  SmallVector<Attribute> stages;
  for (const planner::StagePlan &stage : plan.stages) {
    SmallVector<StringRef> policies;
    if (llvm::any_of(stage.recompute, [](planner::Recompute policy) { return policy != planner::Recompute::None; }))
      for (planner::Recompute policy : stage.recompute)
        policies.push_back(recomputeName(policy));
    stages.push_back(exec::StageAttr::get(context, stage.firstLayer, stage.layers, b.getStrArrayAttr(policies)));
  }
  return exec::PlanAttr::get(context, plan.microBatchSize, plan.microBatches, plan.virtualStages, plan.zero,
                             plan.sequenceParallel, plan.zigzag, plan.vocabParallel, plan.splitsExperts,
                             plan.keepTensorParallelResults, plan.sliceRecomputedInputs, plan.offloadOptimizer,
                             plan.offloadActivations, plan.offloadParameters, planner::scheduleName(plan.schedule),
                             b.getArrayAttr(stages));
}

exec::OptimizerAttr optimizerAttribute(MLIRContext *context, const RunConfig &run) {
  const OptimizerConfig &from = run.optimizer;
  SmallVector<double> groupDecays;
  for (const RateGroup &group : from.rateGroups)
    groupDecays.push_back(group.weightDecay.value_or(from.weightDecay));
  return exec::OptimizerAttr::get(context, &rt::optimizerRow(from.type), from.beta1, from.beta2, from.epsilon,
                                  from.weightDecay, from.clip ? from.maxGradNorm : 0, from.momentum, from.nesterov,
                                  from.newtonSchulzSteps, from.scaleMode, from.scaleFactor, from.skipSpikeFactor,
                                  from.qkClipThreshold, DenseF64ArrayAttr::get(context, groupDecays),
                                  run.dtypes.masterWeights);
}

exec::ParameterAttr parameterAttribute(MLIRContext *context, const ParameterDescription &parameter,
                                       const std::string &owner, const std::vector<RateGroup> &groups) {
  exec::ClipAttr clip;
  if (const auto &from = parameter.clip)
    clip = exec::ClipAttr::get(context, from->counter, from->heads, from->exponent);
  auto group = llvm::find_if(groups, [&](const RateGroup &g) { return llvm::is_contained(g.parameters, owner); });
  return exec::ParameterAttr::get(context, static_cast<exec::Initializer>(static_cast<int>(parameter.initializer.kind)),
                                  parameter.initializer.stddev, parameter.decay, clip, parameter.signRate,
                                  parameter.tiedTo, group == groups.end() ? 0 : group - groups.begin() + 1);
}

/// Returns, by name, the properties of a segment's parameters that the optimizer and checkpoints need.
DictionaryAttr parametersAttribute(Builder &b, const SegmentDescription &segment,
                                   const std::vector<RateGroup> &groups) {
  SmallVector<NamedAttribute> list;
  for (const ParameterDescription &parameter : segment.parameters) {
    std::string owner = parameter.tiedTo.empty() ? segment.kind + "." + parameter.name : parameter.tiedTo;
    list.push_back(b.getNamedAttr(parameter.name, parameterAttribute(b.getContext(), parameter, owner, groups)));
  }
  return b.getDictionaryAttr(list);
}

} // namespace

void setUnfusedEpilogues(ModuleOp module, const RunConfig &run) {
  SmallVector<StringRef> names(run.unfusedEpilogues.begin(), run.unfusedEpilogues.end());
  if (!names.empty())
    exec::unfusedEpiloguesAttr.set(module, Builder(module.getContext()).getStrArrayAttr(names));
}

void setRunAttributes(ModuleOp module, const RunConfig &run, const planner::Plan &plan) {
  MLIRContext *context = module.getContext();
  Builder b(context);
  SmallVector<Attribute> runs;
  for (const SegmentRun &part : run.model.runs)
    runs.push_back(model::RunAttr::get(context, part.kind, part.count));
  SmallVector<NamedAttribute> sizes;
  for (const auto &[name, size] : run.model.dims)
    sizes.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(size)));
  model::runsAttr.set(module, b.getArrayAttr(runs));
  model::sizesAttr.set(module, b.getDictionaryAttr(sizes));
  exec::planAttr.set(module, planAttribute(context, plan));
  exec::optimizerAttr.set(module, optimizerAttribute(context, run));
  setUnfusedEpilogues(module, run);
  if (std::vector<int64_t> counts = rampMicroBatches(run, plan); !counts.empty())
    exec::batchRampAttr.set(module, b.getDenseI64ArrayAttr(counts));
  if (const MatmulAlgorithms &measured = run.cluster.matmulAlgorithms; !measured.products.empty()) {
    SmallVector<NamedAttribute> products;
    for (const auto &[product, algorithm] : measured.products)
      products.push_back(b.getNamedAttr(product, b.getStringAttr(algorithm)));
    exec::matmulAlgorithmsAttr.set(
        module, exec::MatmulAlgorithmsAttr::get(context, measured.library, b.getDictionaryAttr(products)));
  }
  if (run.runMode == "predict" || run.runMode == "eval")
    exec::modeAttr.set(
        module, exec::ModeAttr::get(context, run.runMode == "eval" ? exec::Mode::Evaluate : exec::Mode::Generate));
  for (const SegmentDescription &segment : run.model.segments)
    for (const std::string &name : {segment.kind, segment.kind + ".decode"}) // generation has no joint function
      if (auto function = module.lookupSymbol<func::FuncOp>(name))
        model::parametersAttr.set(function, parametersAttribute(b, segment, run.optimizer.rateGroups));
}

FailureOr<planner::Plan> readPlan(ModuleOp module) {
  dist::MeshAttr mesh = dist::meshAttr.of(module);
  exec::PlanAttr from = exec::planAttr.of(module);
  if (!mesh || !from)
    return module.emitError("needs dist.mesh and exec.plan, which the phase model sets");
  std::optional<planner::Schedule> schedule = planner::scheduleNamed(from.getSchedule());
  if (!schedule)
    return module.emitError("exec.plan has the unknown schedule '") << from.getSchedule() << "'";
  planner::Plan plan;
  for (auto [axis, size] : llvm::zip_equal(meshAxes, axisMembers(plan)))
    *size = static_cast<int>(mesh.size(axis));
  if (int64_t replicas = mesh.size(replicateAxis); replicas > 1) {
    plan.zeroGroup = plan.dp;
    plan.dp *= static_cast<int>(replicas);
  }
  plan.virtualStages = from.getVirtualStages();
  plan.microBatchSize = from.getMicroBatchSize();
  plan.microBatches = from.getMicroBatches();
  plan.zero = from.getZero();
  plan.sequenceParallel = from.getSequenceParallel();
  plan.zigzag = from.getZigzag();
  plan.vocabParallel = from.getVocabParallel();
  plan.splitsExperts = from.getSplitsExperts();
  if (auto dims = dist::dimsAttr.of(module)) // dist.dims alone says where experts are
    if (auto axes = dims.getAs<ArrayAttr>("expert"))
      plan.expertsOverContext = llvm::is_contained(axes.getAsValueRange<StringAttr>(), "cp");
  plan.keepTensorParallelResults = from.getKeepTensorParallelResults();
  plan.sliceRecomputedInputs = from.getSliceRecomputedInputs();
  plan.offloadOptimizer = from.getOffloadOptimizer();
  plan.offloadActivations = from.getOffloadActivations();
  plan.offloadParameters = from.getOffloadParameters();
  plan.schedule = *schedule;
  for (Attribute attribute : from.getStages()) {
    auto stage = dyn_cast<exec::StageAttr>(attribute);
    if (!stage)
      return module.emitError("exec.plan has ") << attribute << " for a stage";
    planner::StagePlan &part =
        plan.stages.emplace_back(planner::StagePlan{stage.getFirstLayer(), stage.getLayers(), {}});
    part.recompute.resize(stage.getRecompute().empty() ? part.layers : 0, planner::Recompute::None);
    for (StringRef name : stage.getRecompute().getAsValueRange<StringAttr>()) {
      std::optional<planner::Recompute> policy = planner::recomputeNamed(name);
      if (!policy)
        return module.emitError("exec.plan has the unknown policy '") << name << "'";
      part.recompute.push_back(*policy);
    }
  }
  return plan;
}

std::vector<SegmentRun> readRuns(ModuleOp module) {
  std::vector<SegmentRun> runs;
  if (ArrayAttr from = model::runsAttr.of(module))
    for (Attribute attribute : from)
      if (auto run = dyn_cast<model::RunAttr>(attribute))
        runs.push_back({run.getKind().str(), run.getCount()});
  return runs;
}

Type readGradientType(ModuleOp module, bool hasSignRate) {
  TypeAttr type = model::gradientTypeAttr.of(module);
  return type && !hasSignRate ? type.getValue() : Float32Type::get(module.getContext());
}

} // namespace espalier
