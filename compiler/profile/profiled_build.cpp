#include "compiler/profile/profiled_build.h"

#include "compiler/attributes/run_attributes.h"
#include "compiler/passes.h"
#include "compiler/profile/read_live_bytes.h"
#include "compiler/profile/read_terms.h"
#include "dialects/attributes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;

namespace espalier {

using planner::Monomial;
using planner::Size;

namespace {

using LiveBytes = planner::PerRecompute<std::vector<Size>>; ///< by recompute policy

constexpr const char *policies[] = {"none", "selective", "full"};
constexpr const char *stepFunctions[] = {".norm", ".update"};

/// Returns a plan whose partition has every feature that a plan of the pattern can have: replicas, several stages, all
/// policies.
planner::Plan planAt(const RunConfig &run, const ProfilePoint &point) {
  planner::Plan plan;
  plan.dp = point.dp;
  plan.tp = point.tp;
  plan.ep = point.ep;
  plan.pp = 2;
  plan.cp = point.cp;
  plan.microBatchSize = point.samples;
  plan.zero = point.zero;
  plan.sequenceParallel = point.sequenceParallel;
  plan.vocabParallel = run.pins.vocabParallel.value_or(true);
  plan.splitsExperts = point.splitsExperts;
  plan.expertsOverContext = point.expertsOverContext;
  plan.keepTensorParallelResults = !run.recompute.mpCommRecompute;
  plan.sliceRecomputedInputs = run.recompute.recomputeSliceActivation;
  plan.stages = {{0, 3, {planner::Recompute::None, planner::Recompute::Selective, planner::Recompute::Full}}};
  return plan;
}

/// Returns the name of a policy's function, or of that of `none` if the segment does not have the policy.
std::string phaseName(ModuleOp module, const std::string &kind, int policy, const char *phase) {
  std::string name = kind + "." + policies[policy] + phase;
  return module.lookupSymbol(name) ? name : kind + ".none" + phase;
}

/// Returns whether the function runs once per step.
bool isOfStep(func::FuncOp function) {
  return llvm::any_of(stepFunctions, [&](StringRef step) { return function.getName().ends_with(step); });
}

/// Returns whether the function is a backward or weight phase of a segment with separate weight gradients.
bool isOfSplitBackward(func::FuncOp function) {
  StringRef segment = function.getName().rsplit('.').first;
  return function.getName().ends_with(".weight") ||
         (function.getName().ends_with(".backward") &&
          function->getParentOfType<ModuleOp>().lookupSymbol((segment + ".weight").str()));
}

} // namespace

ProfiledBuild::ProfiledBuild(MLIRContext &context, const LikeKinds &like, const std::string &target,
                             const SizeReader &sizes, const BuiltParts &parts)
    : context(context), run(like.built()), target(target), sizes(sizes) {
  model = partitionRun(context, run, planAt(run, sizes.at()), parts.splitBackward ? &weightsApart : nullptr);
  if (!model)
    return;
  if (sizes.at().isUnsplit())
    for (auto segment : module().getOps<exec::SegmentOp>())
      like.visit(module(), segment.getKind().str(), [&](const std::string &kind) {
        for (int phase = 0; phase < 2; ++phase)
          flops[kind][phase] = readFlops(module(), segment.getKind(), {phase == 0 ? "forward" : "backward"});
      });
  for (auto function : llvm::make_early_inc_range(module().getOps<func::FuncOp>()))
    if (!(isOfStep(function) ? parts.step : parts.phases))
      function.erase();
  if (parts.splitBackward) {
    for (auto segment : module().getOps<exec::SegmentOp>())
      readWeights(segment.getKind().str());
    for (auto function : llvm::make_early_inc_range(weightsApart->getOps<func::FuncOp>()))
      if (!isOfSplitBackward(function))
        function.erase();
  }
  if (failed(fuse(module())) || (parts.splitBackward && failed(fuse(*weightsApart))))
    model = {};
}

LogicalResult ProfiledBuild::fuse(ModuleOp module) {
  exec::targetAttr.set(module, StringAttr::get(&context, target));
  setUnfusedEpilogues(module, run);
  PassManager passes(&context);
  passes.enableVerifier(false);
  addFusionPasses(passes);
  return passes.run(module);
}

void ProfiledBuild::readWeights(const std::string &kind) {
  planner::WeightTerms &terms = weightTerms[kind];
  auto function = [&](int policy, const char *phase) {
    return weightsApart->lookupSymbol<func::FuncOp>(phaseName(*weightsApart, kind, policy, phase));
  };
  auto roleOf = [](DictionaryAttr attributes) { return model::roleAttr.in(attributes).getValue(); };
  auto addResults = [&](func::FuncOp from, StringRef role, Size &bytes) {
    for (auto [number, type] : llvm::enumerate(from.getResultTypes()))
      if (roleOf(from.getResultAttrDict(number)) == role)
        add(bytes, sizes.bytes(type));
  };
  for (int policy = 0; policy < 3; ++policy) {
    func::FuncOp weight = function(policy, ".weight");
    if (!weight)
      continue;
    addResults(function(policy, ".forward"), "saved_for_weights", terms.savedBytes[policy]);
    addResults(function(policy, ".backward"), "saved_by_backward", terms.passedBytes[policy]);
    for (func::FuncOp reader : {function(policy, ".backward"), weight})
      for (BlockArgument argument : reader.getArguments())
        if (roleOf(reader.getArgAttrDict(argument.getArgNumber())) == "stream") {
          terms.streamBytes[policy] = {sizes.bytes(argument.getType())};
          terms.readsStream[policy] = terms.readsStream[policy] || reader == weight;
        }
    if (terms.readsStream[policy])
      for (const Monomial &part : terms.streamBytes[policy])
        add(terms.savedBytes[policy], part);
  }
}

LogicalResult ProfiledBuild::lower() {
  PassManager passes(&context);
  passes.enableVerifier(false);
  passes.addPass(createLowerToExec());
  if (weightsApart && failed(passes.run(*weightsApart)))
    return failure();
  return passes.run(module());
}

namespace {

/// Adds the live bytes of a program, if the module has it.
void addProgram(ModuleOp programs, const std::string &name, const SizeReader &sizes, std::vector<Size> &live) {
  if (auto program = programs.lookupSymbol<exec::ProgramOp>(name))
    addLiveBytes(program, sizes, live);
}

} // namespace

LiveBytes ProfiledBuild::liveBytes(const std::string &kind, bool evaluates) const {
  LiveBytes live;
  for (int policy = 0; policy < 3; ++policy) {
    for (const char *phase : {".forward", ".backward"})
      if (!evaluates)
        addProgram(module(), phaseName(module(), kind, policy, phase), sizes, live[policy]);
    addProgram(module(), kind + ".evaluate", sizes, live[policy]);
    keepLargest(live[policy]);
  }
  return live;
}

LiveBytes ProfiledBuild::splitLiveBytes(const std::string &kind) const {
  LiveBytes live;
  ModuleOp apart = weightsApart.get();
  for (int policy = 0; policy < 3; ++policy) {
    addProgram(module(), phaseName(module(), kind, policy, ".forward"), sizes, live[policy]);
    addProgram(module(), kind + ".evaluate", sizes, live[policy]);
    std::string backward = phaseName(apart, kind, policy, ".backward");
    addProgram(apart.lookupSymbol(backward) ? apart : module(), backward, sizes, live[policy]);
    addProgram(apart, phaseName(apart, kind, policy, ".weight"), sizes, live[policy]);
    keepLargest(live[policy]);
  }
  return live;
}

std::vector<Size> ProfiledBuild::stepPeaks(const std::string &kind) const {
  std::vector<Size> live;
  bool isSharded = sizes.at().zero > 0, updatesMatrices = false, clips = false;
  for (exec::BucketOp bucket : exec::findSegment(module(), kind).buckets()) {
    updatesMatrices |= !bucket.getMatrix().empty();
    clips |= bool(bucket.getClipAttr());
  }
  if (isSharded || updatesMatrices || clips)
    for (const char *step : stepFunctions)
      addProgram(module(), kind + step, sizes, live);
  keepLargest(live);
  // A shard has whole matrices, so that more replicas do not always have smaller shards. Under ZeRO this is the upper
  // bound for two and more replicas.
  if (updatesMatrices || !isSharded)
    return live;
  // This holds for experts and all other parameters: ZeRO also shards over ep and cp what these do not split.
  for (Size &size : live)
    for (Monomial &part : size)
      part = product(scaled(part, sizes.at().dp * sizes.at().cp * sizes.at().ep), shareOfReplicas());
  return live;
}

} // namespace espalier
