#include "compiler/driver.h"

#include "compiler/codegen/check_kernels.h"
#include "compiler/codegen/emit_subprograms.h"
#include "compiler/codegen/emit_tables.h"
#include "compiler/codegen/plan_tables.h"
#include "compiler/import/build_model.h"
#include "compiler/passes.h"
#include "compiler/pipeline/add_buckets.h"
#include "compiler/pipeline/add_transfers.h"
#include "compiler/pipeline/describe_run.h"
#include "compiler/pipeline/generation.h"
#include "compiler/plan/apply_plan.h"
#include "compiler/resume_phase.h"
#include "compiler/verify_phase.h"
#include "dialects/register.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

using namespace mlir;

namespace espalier {

namespace {

/// What a phase reads and writes: all that later ones need is in the module.
struct Compilation {
  MLIRContext &context;
  const RunConfig &run;
  const planner::Plan &plan;
  const CompileOptions &options;
  OwningOpRef<ModuleOp> module;
  rt::pb::Plan out;
};

LogicalResult runPasses(Compilation &c, llvm::function_ref<void(OpPassManager &)> add) {
  PassManager passes(&c.context);
  passes.enableVerifier(true);
  add(passes);
  return passes.run(*c.module);
}

bool isGeneration(const RunConfig &run) { return run.runMode == "predict"; }

LogicalResult build(Compilation &c) {
  if (isGeneration(c.run))
    c.module = buildGeneration(c.context, c.run.model, c.run.dtypes, sizesUnder(c.plan), generationPhases(c.run.model));
  else
    c.module = buildModel(c.context, c.run.model, c.run.dtypes, sizesUnder(c.plan));
  if (!c.module)
    return failure();
  applyPlan(*c.module, c.plan, c.run.model);
  labelRun(*c.module, c.run, c.plan, c.options);
  return success();
}

LogicalResult differentiate(Compilation &c) {
  bool trains = !isGeneration(c.run);
  if (failed(runPasses(c, [&](OpPassManager &passes) {
        if (trains)
          passes.addPass(createDifferentiate());
        // Derivative rules are written without regard to each other: shared and unused work goes here, while forward
        // and backward are still one function.
        passes.addPass(createCanonicalizerPass());
        passes.addPass(createCSEPass());
      })))
    return failure();
  // Counted on global shapes, which only this phase has; generation has no joint functions, and none to count.
  double flops = stepFlops(*c.module) * static_cast<double>(c.plan.microBatches);
  (*c.module)->setAttr("exec.step_flops", Builder(&c.context).getF64FloatAttr(flops));
  return success();
}

LogicalResult partition(Compilation &c) {
  return runPasses(c, [](OpPassManager &passes) {
    passes.addPass(createPropagateShardings());
    passes.addPass(createInsertReshards());
    passes.addPass(createLocalize());
  });
}

LogicalResult splitPhases(Compilation &c) {
  return runPasses(c, [&](OpPassManager &passes) {
    // Joint functions say where a parameter and its gradient live; behind the split they are gone.
    passes.addPass(createFormBuckets());
    if (!isGeneration(c.run)) { // that is built as phases, and has no optimizer
      passes.addPass(createSplitPhases());
      passes.addPass(createBuildOptimizer());
      // The optimizer's functions repeat constants; what is laid out next should be all that stays.
      passes.addPass(createCSEPass());
    }
    passes.addPass(createLayOutRegions());
  });
}

LogicalResult lower(Compilation &c) {
  return runPasses(c, [](OpPassManager &passes) { addCodegenPasses(passes); });
}

/// Each kernel object as a file named after the model and the level.
LogicalResult writeKernels(MLIRContext &context, const rt::pb::Plan &plan, const std::string &folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const rt::pb::Object &object : plan.objects()) {
    std::string file = folder + "/" + object.level() + (plan.target() == "cuda" ? ".ptx" : ".so");
    std::ofstream stream(file, std::ios::binary);
    stream << object.code();
    if (!stream.flush())
      return emitError(UnknownLoc::get(&context)) << "--emit-kernels: cannot write " << file;
  }
  return success();
}

LogicalResult schedule(Compilation &c) {
  if (std::string reason = whyNotExecutable(c.run); !reason.empty())
    return emitError(c.module->getLoc()) << reason;
  return runPasses(c, [](OpPassManager &passes) {
    passes.addPass(createBuildTransfers());
    // How far programs reach into their regions is known now: places are no larger than that.
    passes.addPass(createAssignStages());
    // Actions name the slots of the stage's lifetimes.
    passes.addPass(createExpandSchedule());
  });
}

LogicalResult emitPrograms(Compilation &c) {
  if (failed(emitSubprograms(*c.module, c.out, c.options.emitKernels)))
    return failure();
  if (!c.options.kernelFolder.empty() && failed(writeKernels(c.context, c.out, c.options.kernelFolder)))
    return failure();
  if (c.options.check && c.options.emitKernels &&
      failed(codegen::checkKernels(*c.module, c.out, c.options.openKernelRunner)))
    return failure();
  return success();
}

/// Writes the plan: a translation of the last phase's IR, which decides nothing.
LogicalResult emit(Compilation &c) {
  if (std::string reason = whyNotExecutable(c.run); !reason.empty())
    return emitError(c.module->getLoc()) << reason;
  auto flops = (*c.module)->getAttrOfType<FloatAttr>("exec.step_flops");
  if (!flops)
    return emitError(c.module->getLoc()) << "needs exec.step_flops, which the phase joint sets";
  describeRun(c.run, c.plan, flops.getValueAsDouble(), c.out);
  c.out.set_target(c.options.target);
  emitTables(*c.module, c.out);
  PlanTables tables(c.out);
  emitBuckets(readSegments(*c.module), /*trains=*/!isGeneration(c.run), tables, c.out);
  if (failed(emitPrograms(c)) || failed(emitStages(*c.module, c.out)))
    return failure();
  addCommunicators(c.out);
  return success();
}

struct Phase {
  const char *name;
  LogicalResult (*run)(Compilation &);
};

constexpr Phase phases[] = {
    {"model", build},        {"joint", differentiate}, {"partition", partition},
    {"phases", splitPhases}, {"exec", lower},          {"plan", schedule},
};

std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, OpPrintingFlags().enableDebugInfo());
  return text;
}

} // namespace

std::string whyNotExecutable(const RunConfig &run) {
  if (run.model.hasExperts() && run.runMode == "predict")
    return "mixture-of-experts models are trained and evaluated, but do not generate yet: experts' slots are given "
           "within whole sequences; use run_mode train, finetune or eval";
  return "";
}

std::vector<std::string> phaseNames() {
  std::vector<std::string> names;
  for (const Phase &phase : phases)
    names.push_back(phase.name);
  return names;
}

namespace {

Compilation start(MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                  const CompileOptions &options) {
  DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  return Compilation{context, run, plan, options, {}, {}};
}

} // namespace

void printDiagnostics(MLIRContext &context) {
  context.getDiagEngine().registerHandler([](Diagnostic &diagnostic) {
    std::string place = "espalier";
    if (auto at = diagnostic.getLocation()->findInstanceOf<FileLineColLoc>())
      place = fmt::format("{}:{}:{}", at.getFilename().str(), at.getLine(), at.getColumn());
    fmt::print(stderr, "{}: error: {}\n", place, diagnostic.str());
    return success();
  });
}

std::optional<PartitionedModel> partitionRun(MLIRContext &context, const RunConfig &run, const planner::Plan &plan) {
  CompileOptions options;
  Compilation c = start(context, run, plan, options);
  for (const Phase &phase : phases) {
    if (failed(phase.run(c)) || failed(verifyPhase(*c.module, phase.name)))
      return std::nullopt;
    if (StringRef(phase.name) == "phases")
      break;
  }
  std::vector<SegmentLayout> segments = readSegments(*c.module);
  return PartitionedModel{std::move(c.module), std::move(segments)};
}

std::optional<Compiled> compileRun(MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                   const CompileOptions &options) {
  Compilation c = start(context, run, plan, options);
  bool isReached = options.compileFrom.empty();
  for (auto [index, phase] : llvm::enumerate(phases)) {
    if (isReached) {
      if (failed(phase.run(c)))
        return std::nullopt;
      labelPhase(*c.module, phase.name);
    } else if (options.compileFrom == phase.name) {
      if (!(c.module = readPhase(context, options.irFile, phase.name, run, plan, options)))
        return std::nullopt;
      isReached = true;
    } else {
      continue;
    }
    if (failed(verifyPhase(*c.module, phase.name)))
      return std::nullopt;
    if (!options.dumpPhases.empty()) {
      std::string file = options.dumpPhases + "/" + std::to_string(index) + "." + phase.name + ".mlir";
      std::error_code error;
      std::filesystem::create_directories(options.dumpPhases, error);
      std::ofstream stream(file);
      stream << print(*c.module);
      if (!stream.flush()) {
        emitError(UnknownLoc::get(&context)) << "--dump-phases: cannot write " << file;
        return std::nullopt;
      }
    }
    if (options.compileTo == phase.name)
      return Compiled{{}, print(*c.module)};
  }
  if (failed(emit(c)))
    return std::nullopt;
  return Compiled{std::move(c.out), {}};
}

} // namespace espalier
