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
#include "compiler/plan/run_attributes.h"
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

/// The inputs and outputs of phases. All state that later phases need is in the module.
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

LogicalResult build(Compilation &c) {
  if (c.run.runMode == "predict")
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
  bool hasBackward = trains(*c.module);
  if (failed(runPasses(c, [&](OpPassManager &passes) {
        if (hasBackward)
          passes.addPass(createDifferentiate());
        // Derivative rules are independent of each other. Removes shared and unused work here, while forward and
        // backward are still one function.
        passes.addPass(createCanonicalizerPass());
        passes.addPass(createCSEPass());
      })))
    return failure();
  // Counts operations on global shapes, which only this phase has. Generation has no joint functions, so its count is
  // 0.
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
    // Joint functions define where a parameter and its gradient are stored; splitting removes these functions.
    passes.addPass(createFormBuckets());
    if (!generates(*c.module)) // generation is built as separate phases
      passes.addPass(createSplitPhases());
    if (trains(*c.module)) {
      passes.addPass(createBuildOptimizer());
      // The optimizer's functions repeat constants. Removes them before the layout, so that only used values are laid
      // out.
      passes.addPass(createCSEPass());
    }
    passes.addPass(createLayOutRegions());
  });
}

LogicalResult lower(Compilation &c) {
  return runPasses(c, [](OpPassManager &passes) { addCodegenPasses(passes); });
}

/// Writes each kernel object to a file that is named after its level.
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
  return runPasses(c, [](OpPassManager &passes) {
    passes.addPass(createBuildTransfers());
    // The access extents of programs in their regions are known now, so allocations are no larger than needed.
    passes.addPass(createAssignStages());
    // Actions refer to the slots of the stage's live ranges.
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

/// Writes the plan. Only translates the IR of the last phase.
LogicalResult emit(Compilation &c) {
  auto flops = (*c.module)->getAttrOfType<FloatAttr>("exec.step_flops");
  if (!flops)
    return emitError(c.module->getLoc()) << "needs exec.step_flops, which the phase joint sets";
  describeRun(c.run, c.plan, flops.getValueAsDouble(), c.out);
  c.out.set_target(c.options.target);
  emitTables(*c.module, c.out);
  PlanTables tables(c.out);
  emitBuckets(readSegments(*c.module), trains(*c.module), tables, c.out);
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

std::optional<PartitionedModel> partitionRun(MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                             OwningOpRef<ModuleOp> *weightsApart) {
  CompileOptions options;
  Compilation c = start(context, run, plan, options);
  for (const Phase &phase : phases) {
    bool isLast = StringRef(phase.name) == "phases";
    if (isLast && weightsApart) {
      Compilation apart{context, run, plan, options, c.module->clone(), {}};
      splitBackward(*apart.module, run.model);
      if (failed(phase.run(apart)))
        return std::nullopt;
      *weightsApart = std::move(apart.module);
    }
    if (failed(phase.run(c)) || failed(verifyPhase(*c.module, phase.name)))
      return std::nullopt;
    if (isLast)
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
