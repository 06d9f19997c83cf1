#include "compiler/driver.h"

#include "compiler/attributes/apply_plan.h"
#include "compiler/attributes/batch_ramp.h"
#include "compiler/attributes/run_attributes.h"
#include "compiler/codegen/check_kernels.h"
#include "compiler/codegen/emit_objects.h"
#include "compiler/codegen/target.h"
#include "compiler/import/model/build_model.h"
#include "compiler/link/describe_run.h"
#include "compiler/link/generation.h"
#include "compiler/link/link_plan.h"
#include "compiler/link/plan_text.h"
#include "compiler/passes.h"
#include "compiler/resume_phase.h"
#include "compiler/verify_phase.h"
#include "dialects/attributes.h"
#include "dialects/register.h"

#include "messages/error_line.h"
#include "messages/write_fault.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

using namespace mlir;

namespace espalier {

void addFusionPasses(OpPassManager &passes) {
  // Derivatives repeat subexpressions of the forward pass, and a group should contain each only once.
  passes.addPass(createCSEPass());
  // Folds ops into products before groups absorb them, because a product's epilogue is free.
  passes.addPass(createFoldEpilogues());
  passes.addPass(createFuseKernels());
  // Moves whole groups. After buffer assignment, the reuse of buffers would prevent such moves.
  passes.addPass(createOverlapCommunication());
}

void addCodegenPasses(OpPassManager &passes) {
  addFusionPasses(passes);
  // Creates buffers only after groups are known, because values inside a kernel need none.
  passes.addPass(createLowerToExec());
  passes.addPass(createPlanBuffers());
  // Collectives name their values now, also those that other programs have.
  passes.addPass(createPropagateValueAxes());
}

namespace {

/// The inputs and outputs of phases. All state that later phases need is in the module.
struct Compilation {
  MLIRContext &context;
  const RunConfig &run;
  const planner::Plan &plan;
  const CompileOptions &options;
  OwningOpRef<ModuleOp> module;
  rt::pb::Plan out;
  bool verifiesPasses = true; ///< whether the IR is verified after each pass
};

LogicalResult runPasses(Compilation &c, llvm::function_ref<void(OpPassManager &)> add) {
  PassManager passes(&c.context);
  passes.enableVerifier(c.verifiesPasses);
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
  labelRun(*c.module, c.run, c.plan, c.options);
  return success();
}

LogicalResult differentiate(Compilation &c) {
  bool hasBackward = exec::trains(*c.module);
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
  exec::stepFlopsAttr.set(*c.module, Builder(&c.context).getF64FloatAttr(flops));
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
    if (!exec::generates(*c.module)) // generation is built as separate phases
      passes.addPass(createSplitPhases());
    if (exec::trains(*c.module)) {
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
    std::string file = folder + "/" + object.level() + codegen::findTarget(plan.target())->objectExtension().str();
    std::ofstream stream(file, std::ios::binary);
    stream << object.code();
    if (!stream.flush())
      return emitError(UnknownLoc::get(&context))
             << "--emit-kernels: cannot write " << file << ": " << rt::whyNotWritten(file, errno);
  }
  return success();
}

/// Links the programs into a plan without machine code.
LogicalResult link(Compilation &c) {
  auto flops = exec::stepFlopsAttr.of(*c.module);
  if (!flops)
    return emitError(c.module->getLoc()) << "needs exec.step_flops, which the phase joint sets";
  describeRun(c.run, c.plan, flops.getValueAsDouble(), c.out);
  c.out.set_target(c.options.target);
  return linkPlan(*c.module, c.out);
}

/// Adds machine code to the plan, and writes and checks it if the options ask for it.
LogicalResult emitKernels(Compilation &c) {
  if (failed(codegen::emitObjects(*c.module, c.out, c.options.onlyLevel)))
    return failure();
  if (!c.options.kernelFolder.empty() && failed(writeKernels(c.context, c.out, c.options.kernelFolder)))
    return failure();
  return c.options.check ? codegen::checkKernels(*c.module, c.out, c.options.openKernelRunner) : success();
}

struct Phase {
  const char *name;
  LogicalResult (*run)(Compilation &);
};

constexpr Phase phases[] = {
    {"model", build}, {"joint", differentiate}, {"partition", partition}, {"phases", splitPhases}, {"exec", lower},
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
  return Compilation{context, run, plan, options, {}, {}, /*verifiesPasses=*/true};
}

} // namespace

void printDiagnostics(MLIRContext &context) {
  context.getDiagEngine().registerHandler([](Diagnostic &diagnostic) {
    std::string place = "espalier";
    if (auto at = diagnostic.getLocation()->findInstanceOf<FileLineColLoc>())
      place = fmt::format("{}:{}:{}", at.getFilename().str(), at.getLine(), at.getColumn());
    printError(place, diagnostic.str());
    return success();
  });
}

OwningOpRef<ModuleOp> partitionRun(MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                   OwningOpRef<ModuleOp> *weightsApart) {
  CompileOptions options;
  Compilation c = start(context, run, plan, options);
  // A planner's query partitions the model dozens of times. A compilation verifies the same passes.
  c.verifiesPasses = false;
  for (const Phase &phase : phases) {
    bool isLast = StringRef(phase.name) == "phases";
    if (isLast && weightsApart) {
      Compilation apart{context, run, plan, options, c.module->clone(), {}, c.verifiesPasses};
      splitBackward(*apart.module, run.model);
      if (failed(phase.run(apart)))
        return {};
      *weightsApart = std::move(apart.module);
    }
    if (failed(phase.run(c)) || failed(verifyPhase(*c.module, phase.name)))
      return {};
    if (StringRef(phase.name) == "model" && failed(verify(*c.module)))
      return {}; // an error of the model file
    if (isLast)
      break;
  }
  return std::move(c.module);
}

namespace {

/// Writes the result of a phase to a file of --dump-phases, if the option is given.
LogicalResult dumpPhase(Compilation &c, const std::string &name, llvm::function_ref<std::string()> text) {
  const std::string &folder = c.options.dumpPhases;
  if (folder.empty())
    return success();
  std::string file = folder + "/" + name;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::ofstream stream(file);
  stream << text();
  if (!stream.flush())
    return emitError(UnknownLoc::get(&c.context))
           << "--dump-phases: cannot write " << file << ": " << rt::whyNotWritten(file, errno);
  return success();
}

} // namespace

std::optional<Compiled> compileRun(MLIRContext &context, const RunConfig &run, const planner::Plan &plan,
                                   const CompileOptions &options) {
  if (std::string reason = whyNoRamp(run, plan); !reason.empty()) {
    const char *key = run.places.contains("runner_config.step_batch_size_schedule")
                          ? "runner_config.step_batch_size_schedule"
                          : "runner_config.rampup_batch_size";
    auto place = run.places.find(key);
    SourceLocation at = place == run.places.end() ? SourceLocation{run.file, 1, 1} : place->second;
    emitError(FileLineColLoc::get(&context, at.file, at.line, at.column)) << key << ": " << reason;
    return std::nullopt;
  }
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
    if (failed(verifyPhase(*c.module, phase.name)) ||
        failed(dumpPhase(c, fmt::format("{}.{}.mlir", index, phase.name), [&] { return print(*c.module); })))
      return std::nullopt;
    if (options.compileTo == phase.name)
      return Compiled{{}, print(*c.module)};
  }
  std::string file = fmt::format("{}.{}.txtpb", std::size(phases), planPhase);
  if (failed(link(c)) || failed(dumpPhase(c, file, [&] { return planText(c.out); })))
    return std::nullopt;
  if (options.compileTo == planPhase)
    return Compiled{{}, planText(c.out)};
  if (options.emitKernels && failed(emitKernels(c)))
    return std::nullopt;
  return Compiled{std::move(c.out), {}};
}

} // namespace espalier
