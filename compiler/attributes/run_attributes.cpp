#include "compiler/attributes/run_attributes.h"

#include "compiler/attributes/batch_ramp.h"
#include "dialects/dist/dialect.h"
#include "dialects/exec/dialect.h"
#include "format/abi.h"
#include "format/axes.h"
#include "planner/answer/explain.h"
#include "planner/model/schedule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

namespace {

using planner::Recompute;
using planner::Schedule;

DictionaryAttr planAttribute(Builder &b, const planner::Plan &plan) {
  SmallVector<Attribute> stages;
  for (const planner::StagePlan &stage : plan.stages) {
    SmallVector<StringRef> policies;
    for (Recompute policy : stage.recompute)
      policies.push_back(recomputeName(policy));
    stages.push_back(b.getDictionaryAttr({b.getNamedAttr("first_layer", b.getI64IntegerAttr(stage.firstLayer)),
                                          b.getNamedAttr("layers", b.getI64IntegerAttr(stage.layers)),
                                          b.getNamedAttr("recompute", b.getStrArrayAttr(policies))}));
  }
  return b.getDictionaryAttr({b.getNamedAttr("micro_batch_size", b.getI64IntegerAttr(plan.microBatchSize)),
                              b.getNamedAttr("micro_batches", b.getI64IntegerAttr(plan.microBatches)),
                              b.getNamedAttr("schedule", b.getStringAttr(planner::scheduleName(plan.schedule))),
                              b.getNamedAttr("stages", b.getArrayAttr(stages)),
                              b.getNamedAttr("virtual_stages", b.getI64IntegerAttr(plan.virtualStages)),
                              b.getNamedAttr("zero", b.getI64IntegerAttr(plan.zero))});
}

/// Returns the name of the weight decay of a group of parameters, counted from 0.
std::string groupDecayName(size_t group) { return "weight_decay" + std::to_string(group + 1); }

DictionaryAttr optimizerAttribute(Builder &b, const RunConfig &run) {
  const OptimizerConfig &from = run.optimizer;
  SmallVector<NamedAttribute> list;
  auto add = [&](const char *name, double value) { list.push_back(b.getNamedAttr(name, b.getF64FloatAttr(value))); };
  for (auto [name, value] :
       {std::pair("beta1", from.beta1), std::pair("beta2", from.beta2), std::pair("epsilon", from.epsilon),
        std::pair("weight_decay", from.weightDecay), std::pair("max_grad_norm", from.clip ? from.maxGradNorm : 0)})
    add(name, value);
  if (from.type != rt::pb::ADAMW) {
    list.push_back(b.getNamedAttr("type", b.getStringAttr(rt::optimizerRow(from.type).name)));
    add("momentum", from.momentum);
    add("nesterov", from.nesterov);
    add("ns_steps", static_cast<double>(from.newtonSchulzSteps));
    list.push_back(b.getNamedAttr("scale_mode", b.getStringAttr(from.scaleMode)));
    add("extra_scale_factor", from.scaleFactor);
  }
  if (from.skipSpikeFactor > 0)
    add("skip_spike_factor", from.skipSpikeFactor);
  if (from.qkClipThreshold > 0)
    add("qk_clip_threshold", from.qkClipThreshold);
  if (!from.rateGroups.empty())
    list.push_back(b.getNamedAttr("rate_groups", b.getI64IntegerAttr(static_cast<int64_t>(from.rateGroups.size()))));
  for (auto [number, group] : llvm::enumerate(from.rateGroups))
    if (group.weightDecay)
      add(groupDecayName(number).c_str(), *group.weightDecay);
  if (run.dtypes.masterWeights)
    list.push_back(b.getNamedAttr("masters", b.getUnitAttr()));
  return b.getDictionaryAttr(list);
}

/// Returns, by name, the properties of a segment's parameters that the optimizer and checkpoints need.
DictionaryAttr parametersAttribute(Builder &b, const SegmentDescription &segment,
                                   const std::vector<RateGroup> &groups) {
  SmallVector<NamedAttribute> list;
  for (const ParameterDescription &parameter : segment.parameters) {
    auto initializer = static_cast<exec::Initializer>(static_cast<int>(parameter.initializer.kind));
    SmallVector<NamedAttribute> facts = {
        b.getNamedAttr("initializer", b.getStringAttr(exec::stringifyInitializer(initializer))),
        b.getNamedAttr("stddev", b.getF64FloatAttr(parameter.initializer.stddev))};
    if (parameter.decay)
      facts.push_back(b.getNamedAttr("decays", b.getUnitAttr()));
    if (parameter.clip)
      facts.push_back(b.getNamedAttr(
          "clip", b.getDictionaryAttr({b.getNamedAttr("counter", b.getStringAttr(parameter.clip->counter)),
                                       b.getNamedAttr("exponent", b.getF64FloatAttr(parameter.clip->exponent)),
                                       b.getNamedAttr("heads", b.getStringAttr(parameter.clip->heads))})));
    if (parameter.signRate > 0)
      facts.push_back(b.getNamedAttr("sign_rate", b.getF64FloatAttr(parameter.signRate)));
    if (!parameter.tiedTo.empty())
      facts.push_back(b.getNamedAttr("tied_to", b.getStringAttr(parameter.tiedTo)));
    std::string owner = parameter.tiedTo.empty() ? segment.kind + "." + parameter.name : parameter.tiedTo;
    for (auto [number, group] : llvm::enumerate(groups))
      if (llvm::is_contained(group.parameters, owner))
        facts.push_back(b.getNamedAttr("rate_group", b.getI64IntegerAttr(static_cast<int64_t>(number) + 1)));
    list.push_back(b.getNamedAttr(parameter.name, b.getDictionaryAttr(facts)));
  }
  return b.getDictionaryAttr(list);
}

template <typename Number> void readNumber(DictionaryAttr from, StringRef name, Number &number) {
  if (auto integer = from.getAs<IntegerAttr>(name))
    number = static_cast<Number>(integer.getInt());
  else if (auto real = from.getAs<FloatAttr>(name))
    number = static_cast<Number>(real.getValueAsDouble());
}

planner::StagePlan readStage(DictionaryAttr from) {
  planner::StagePlan stage;
  readNumber(from, "first_layer", stage.firstLayer);
  readNumber(from, "layers", stage.layers);
  if (auto policies = from.getAs<ArrayAttr>("recompute"))
    for (StringRef policy : policies.getAsValueRange<StringAttr>())
      stage.recompute.push_back(planner::recomputeNamed(policy).value_or(Recompute::None));
  stage.recompute.resize(stage.layers, Recompute::None);
  return stage;
}

} // namespace

void setUnfusedEpilogues(ModuleOp module, const RunConfig &run) {
  SmallVector<StringRef> names(run.unfusedEpilogues.begin(), run.unfusedEpilogues.end());
  if (!names.empty())
    module->setAttr("exec.unfused_epilogues", Builder(module.getContext()).getStrArrayAttr(names));
}

void setRunAttributes(ModuleOp module, const RunConfig &run, const planner::Plan &plan) {
  Builder b(module.getContext());
  SmallVector<Attribute> runs;
  for (const SegmentRun &part : run.model.runs)
    runs.push_back(b.getDictionaryAttr({b.getNamedAttr("count", b.getI64IntegerAttr(part.count)),
                                        b.getNamedAttr("kind", b.getStringAttr(part.kind))}));
  SmallVector<NamedAttribute> sizes;
  for (const auto &[name, size] : run.model.dims)
    sizes.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(size)));
  module->setAttr("model.runs", b.getArrayAttr(runs));
  module->setAttr("model.sizes", b.getDictionaryAttr(sizes));
  module->setAttr("model.plan", b.getStringAttr(planner::describePlan(plan)));
  module->setAttr("exec.plan", planAttribute(b, plan));
  module->setAttr("exec.optimizer", optimizerAttribute(b, run));
  setUnfusedEpilogues(module, run);
  if (std::vector<int64_t> counts = rampMicroBatches(run, plan); !counts.empty())
    module->setAttr("exec.batch_ramp", b.getDenseI64ArrayAttr(counts));
  if (const MatmulAlgorithms &measured = run.cluster.matmulAlgorithms; !measured.products.empty()) {
    SmallVector<NamedAttribute> products;
    for (const auto &[product, algorithm] : measured.products)
      products.push_back(b.getNamedAttr(product, b.getStringAttr(algorithm)));
    module->setAttr("exec.matmul_algorithms",
                    b.getDictionaryAttr({b.getNamedAttr("library", b.getStringAttr(measured.library)),
                                         b.getNamedAttr("products", b.getDictionaryAttr(products))}));
  }
  if (run.runMode == "predict")
    module->setAttr("exec.generation", b.getUnitAttr());
  if (run.runMode == "eval")
    module->setAttr("exec.evaluation", b.getUnitAttr());
  for (const SegmentDescription &segment : run.model.segments)
    for (const std::string &name : {segment.kind, segment.kind + ".decode"}) // generation has no joint function
      if (auto function = module.lookupSymbol<func::FuncOp>(name))
        function->setAttr("model.parameters", parametersAttribute(b, segment, run.optimizer.rateGroups));
}

bool generates(ModuleOp module) { return module->hasAttr("exec.generation"); }

bool trains(ModuleOp module) { return !generates(module) && !module->hasAttr("exec.evaluation"); }

planner::Plan readPlan(ModuleOp module) {
  planner::Plan plan;
  if (auto mesh = module->getAttrOfType<dist::MeshAttr>("dist.mesh"))
    for (auto [axis, size] : llvm::zip_equal(meshAxes, axisMembers(plan)))
      *size = static_cast<int>(mesh.size(axis));
  if (auto mesh = module->getAttrOfType<dist::MeshAttr>("dist.mesh"); mesh && mesh.size(replicateAxis) > 1) {
    plan.zeroGroup = plan.dp;
    plan.dp *= static_cast<int>(mesh.size(replicateAxis));
  }
  if (auto from = module->getAttrOfType<DictionaryAttr>("exec.plan")) {
    readNumber(from, "micro_batch_size", plan.microBatchSize);
    readNumber(from, "micro_batches", plan.microBatches);
    readNumber(from, "virtual_stages", plan.virtualStages);
    readNumber(from, "zero", plan.zero);
    if (auto schedule = from.getAs<StringAttr>("schedule"))
      plan.schedule = planner::scheduleNamed(schedule.getValue()).value_or(Schedule::OneFOneB);
    if (auto stages = from.getAs<ArrayAttr>("stages"))
      for (DictionaryAttr stage : stages.getAsRange<DictionaryAttr>())
        plan.stages.push_back(readStage(stage));
  }
  return plan;
}

std::vector<SegmentRun> readRuns(ModuleOp module) {
  std::vector<SegmentRun> runs;
  if (auto from = module->getAttrOfType<ArrayAttr>("model.runs"))
    for (DictionaryAttr part : from.getAsRange<DictionaryAttr>()) {
      SegmentRun &run = runs.emplace_back();
      if (auto kind = part.getAs<StringAttr>("kind"))
        run.kind = kind.str();
      readNumber(part, "count", run.count);
    }
  return runs;
}

OptimizerConfig readOptimizer(ModuleOp module) {
  OptimizerConfig to;
  if (auto from = module->getAttrOfType<DictionaryAttr>("exec.optimizer")) {
    for (auto [name, number] :
         {std::pair("beta1", &to.beta1), std::pair("beta2", &to.beta2), std::pair("epsilon", &to.epsilon),
          std::pair("weight_decay", &to.weightDecay), std::pair("max_grad_norm", &to.maxGradNorm),
          std::pair("momentum", &to.momentum), std::pair("extra_scale_factor", &to.scaleFactor),
          std::pair("skip_spike_factor", &to.skipSpikeFactor), std::pair("qk_clip_threshold", &to.qkClipThreshold)})
      readNumber(from, name, *number);
    to.clip = to.maxGradNorm > 0;
    readNumber(from, "nesterov", to.nesterov);
    readNumber(from, "ns_steps", to.newtonSchulzSteps);
    size_t groups = 0;
    readNumber(from, "rate_groups", groups);
    to.rateGroups.resize(std::min<size_t>(groups, rt::mostRateGroups));
    for (auto [number, group] : llvm::enumerate(to.rateGroups))
      if (auto decay = from.getAs<FloatAttr>(groupDecayName(number)))
        group.weightDecay = decay.getValueAsDouble();
    if (auto mode = from.getAs<StringAttr>("scale_mode"))
      to.scaleMode = mode.str();
    auto type = from.getAs<StringAttr>("type");
    if (const rt::OptimizerRow *row = type ? rt::findOptimizer(type.getValue()) : nullptr)
      to.type = row->number;
  }
  return to;
}

Type readGradientType(ModuleOp module, bool hasSignRate) {
  auto type = module->getAttrOfType<TypeAttr>("model.gradient_type");
  return type && !hasSignRate ? type.getValue() : Float32Type::get(module.getContext());
}

bool readMasters(ModuleOp module) {
  auto from = module->getAttrOfType<DictionaryAttr>("exec.optimizer");
  return from && from.contains("masters");
}

} // namespace espalier
