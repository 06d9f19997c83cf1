// `espalier compile`: writes the plan of a run file.
#include "tools/plan/verbs.h"

#include "compiler/choose/choose_plan.h"
#include "compiler/choose/fit_memory.h"
#include "compiler/choose/print_plan.h"
#include "compiler/codegen/target.h"
#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"
#include "format/elastic_plan.h"
#include "format/free_memory.h"
#include "format/optimizers.h"
#include "format/plan_file.h"
#include "messages/counted.h"
#include "messages/error_line.h"
#include "messages/write_fault.h"
#include "planner/answer/explain.h"
#include "tools/command_line/command_line.h"
#include "tools/command_line/exit_code.h"
#include "tools/plan/write_whole.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace espalier {

namespace {

/// The command-line arguments of `compile`.
struct CompileArguments {
  std::string file;
  ImportOptions import;
  CompileOptions options;
  std::string output;
  std::string checkpoint;                   ///< folder of the run that starts with the plan; empty: none
  std::string elasticHosts, elasticDevices; ///< "K..N": numbers for which plans of the same run are compiled, too
  bool json = false;
};

/// Imports the run file. Returns nothing if it has errors or asks for features that are not implemented, because
/// compiling without them would give a different model.
std::optional<ImportedRun> importOrReport(const CompileArguments &arguments) {
  ImportedRun imported = importRun(arguments.file, arguments.import);
  imported.diagnostics.refuse();
  fmt::print(stderr, "{}", imported.diagnostics.render());
  if (!imported.ok())
    return std::nullopt;
  return imported;
}

/// Prints the compiled plan as a line, or as JSON with the planner's prediction.
void printCompiled(const std::string &output, const CompileArguments &arguments, const RunConfig &run,
                   const ChosenPlan &chosen, const rt::pb::Plan &plan, size_t fileBytes) {
  if (!arguments.json) {
    fmt::print("{}: {} on {}: {}, global batch {}\n", output, run.model.name, rt::counted(chosen.plan->ranks(), "rank"),
               describePlan(*chosen.plan), plan.settings().global_batch());
    if ((run.runMode == "train" || run.runMode == "finetune") && run.schedule.total_steps() <= 0)
      fmt::print(
          stderr,
          "espalier: note: {}: the run file has no number of steps, lr_schedule.total_steps; `espalier run --steps "
          "N` gives it\n",
          output);
    return;
  }
  CompiledReport report{output,
                        run.model.name,
                        run.model.parameterCount(),
                        {*chosen.plan, {}, true},
                        false,
                        chosen.reason,
                        {},
                        plan.memory_limit_bytes(),
                        fileBytes,
                        run.cluster};
  report.isPriced = chosen.prediction.has_value();
  if (report.isPriced)
    report.plan.prediction = *chosen.prediction;
  for (const rt::pb::Stage &stage : plan.stages())
    report.arenaBytes.push_back(stage.arena_bytes(rt::pb::DEVICE));
  fmt::print("{}\n", compiledJson(report));
}

/// Returns whether the plan is valid. An invalid plan is a bug of the compiler: prints every error.
bool isVerified(const rt::pb::Plan &plan, const CompilerServices &services) {
  std::vector<std::string> errors = services.verifyPlan(plan);
  for (const std::string &error : errors)
    printError("espalier", fmt::format("the compiled plan does not hold, please report it: {}", error));
  return errors.empty();
}

/// Returns whether this machine has free memory for all ranks of a plan, and prints an error if not.
bool hasMemory(const std::string &file, const planner::Plan &plan, const planner::Prediction &prediction) {
  double need = 0, largest = 0;
  for (const planner::StageMemory &stage : prediction.memory) {
    need += (stage.total() + stage.host()) * plan.ranks() / plan.pp;
    largest = std::max(largest, stage.total() + stage.host());
  }
  rt::FreeMemory free = rt::freeMemory();
  if (need <= static_cast<double>(free.bytes))
    return true;
  printError(file, rt::describeLack(static_cast<uint64_t>(need), plan.ranks(), static_cast<uint64_t>(largest), free));
  return false;
}

/// Returns whether a checkpoint of the run can be written to a folder, and prints an error if not. Its bytes are a
/// lower bound: the run knows them once it has its plan.
bool hasRoom(const std::string &folder, const RunConfig &run) {
  if (folder.empty() || run.runMode == "eval") // an evaluation reads the folder
    return true;
  std::filesystem::path place = rt::presentFolder(folder);
  std::string fault = rt::writeFault(place / "file");
  bool isHalf = run.dtypes.parameters != DType::F32;
  auto states = static_cast<int64_t>(rt::optimizerRow(run.optimizer.type).states.size());
  int64_t ofTrained = 4 * (states + (run.dtypes.masterWeights && isHalf));
  auto least =
      static_cast<uint64_t>(run.model.parameterCount() * (isHalf ? 2 : 4) + run.model.trainableCount() * ofTrained);
  if (uint64_t free = rt::freeDiskBytes(place); fault.empty() && least > free)
    fault = fmt::format("No space left on device: a checkpoint takes at least {}, {} are free", rt::gigabytes(least),
                        rt::gigabytes(free));
  if (!fault.empty())
    printError("--checkpoint", fmt::format("{}: cannot be written: {}; name a folder that can", folder, fault));
  return fault.empty();
}

/// Compiles the run into the file `output`. Says why there is no plan as an error, or as a note.
int compileInto(const std::string &output, const CompileArguments &asked, const ImportedRun &imported,
                const CompilerServices &services, bool isOptional = false) {
  const CompileOptions &options = asked.options;
  const RunConfig &run = imported.config;
  mlir::MLIRContext context;
  printDiagnostics(context);
  ChosenPlan chosen = choosePlan(context, run, options.target);
  if (!chosen.plan) {
    std::string_view reason = chosen.reason, error = "error: ";
    bool isNote = isOptional && reason.starts_with(error);
    fmt::print(stderr, "{}: {}{}\n", asked.file, isNote ? "note: " : "", isNote ? reason.substr(error.size()) : reason);
    return chosen.isInputError ? UserError : DoesNotFit;
  }
  if (!chosen.prediction)
    chosen.prediction = predictionOf(context, run, *chosen.plan, options.target);
  bool runsHere = asked.import.isHere && options.target == "cpu" && run.cluster.hosts == 1;
  if (runsHere && chosen.prediction && !hasMemory(asked.file, *chosen.plan, *chosen.prediction))
    return DoesNotFit;
  std::optional<Compiled> compiled = compileRun(context, run, *chosen.plan, options);
  if (!compiled)
    return UserError;
  if (!options.compileTo.empty()) {
    fmt::print("{}", compiled->text);
    return Success;
  }
  std::string excess = memoryExcess(context, run, *chosen.plan, compiled->plan);
  if (!excess.empty()) {
    fmt::print(stderr, "{}: {}\n", asked.file, excess);
    return DoesNotFit;
  }
  if (chosen.prediction) // runs compare it with what they measure
    compiled->plan.set_predicted_step_seconds(chosen.prediction->stepSeconds);
  compiled->plan.set_run_text(imported.runText);
  compiled->plan.set_model_text(imported.modelText);
  if (!isVerified(compiled->plan, services))
    return Failed;
  std::string bytes = rt::planFileBytes(compiled->plan);
  if (!writeWhole(output, bytes, "the plan"))
    return UserError;
  services.signPlan(output, bytes); // without a key, readers see no signature
  printCompiled(output, asked, run, chosen, compiled->plan, bytes.size());
  return Success;
}

/// Reads "K..N" or "K". Throws UsageError for any other text, and for more numbers than a run needs.
std::vector<int> readCounts(const std::string &option, const std::string &text) {
  constexpr int most = 100000, mostPlans = 256;
  int first = 0, last = 0;
  const char *begin = text.data(), *end = begin + text.size();
  auto [next, error] = std::from_chars(begin, end, first);
  std::string_view rest(next, end);
  std::from_chars_result read{next, error};
  if (rest.starts_with(".."))
    read = std::from_chars(next + 2, end, last);
  else
    last = first;
  if (error != std::errc() || read.ec != std::errc() || read.ptr != end || first < 1 || last < first || last > most)
    throw UsageError(fmt::format("{} {}: wanted K..N with 1 <= K <= N <= {}, such as 2..4", option, text, most));
  if (last - first >= mostPlans)
    throw UsageError(fmt::format("{} {}: these are {} plans; at most {} are compiled at once", option, text,
                                 last - first + 1, mostPlans));
  std::vector<int> counts;
  for (int count = first; count <= last; ++count)
    counts.push_back(count);
  return counts;
}

/// Returns the numbers of devices for which further plans are asked.
std::vector<int> elasticDevices(const CompileArguments &asked, const RunConfig &run) {
  if (!asked.elasticDevices.empty())
    return readCounts("--elastic-devices", asked.elasticDevices);
  std::vector<int> counts;
  if (!asked.elasticHosts.empty())
    counts = readCounts("--elastic-hosts", asked.elasticHosts);
  for (int &count : counts)
    count *= run.cluster.devicesPerHost;
  return counts;
}

/// Compiles the best plan of the run for each other number of devices, at the same global batch, beside `asked.output`.
/// A number without a plan is skipped with a note. Fails if no number has a plan.
int compileElastic(const CompileArguments &asked, const RunConfig &run, const std::vector<int> &counts,
                   const CompilerServices &services) {
  CompileArguments smaller = asked;
  smaller.options.kernelFolder.clear();
  smaller.options.dumpPhases.clear();
  bool isAny = false;
  for (int devices : counts) {
    if (devices == run.cluster.devices())
      continue;
    smaller.import.devices = devices;
    smaller.import.freeAtBatch = run.globalBatch;
    ImportedRun imported = importRun(smaller.file, smaller.import);
    std::string reason;
    for (const Diagnostic &diagnostic : imported.diagnostics.sorted())
      if (diagnostic.severity == Severity::Error && reason.empty())
        reason = diagnostic.message;
    int result = DoesNotFit;
    if (reason.empty())
      result = compileInto(rt::planFileFor(asked.output, devices), smaller, imported, services,
                           /*isOptional=*/true);
    if (result != Success && result != DoesNotFit)
      return result;
    isAny |= result == Success;
    if (!reason.empty())
      fmt::print(stderr, "{}: note: no plan for {}: {}\n", asked.file, rt::counted(devices, "device"), reason);
  }
  if (isAny)
    return Success;
  fmt::print(stderr,
             "{}: error: no number of devices that --elastic-hosts or --elastic-devices names has a plan beside "
             "that of {}; name other numbers\n",
             asked.file, rt::counted(run.cluster.devices(), "device"));
  return DoesNotFit;
}

int compileVerb(const CompileArguments &asked, const CompilerServices &services) {
  const CompileOptions &options = asked.options;
  if (!isTarget(options.target, asked.file) || !canWrite(asked.output, "the plan") ||
      !canWriteInto(options.kernelFolder, "--emit-kernels") || !canWriteInto(options.dumpPhases, "--dump-phases"))
    return UserError;
  std::optional<ImportedRun> run = importOrReport(asked);
  if (!run)
    return UserError;
  if (!hasRoom(asked.checkpoint, run->config))
    return UserError;
  std::vector<int> counts = elasticDevices(asked, run->config);
  int result = compileInto(asked.output, asked, *run, services);
  return result != Success || counts.empty() ? result : compileElastic(asked, run->config, counts, services);
}

/// Returns whether phase `one` comes after phase `other`; false if one of them is not given.
bool comesLater(const std::string &one, const std::string &other) {
  std::vector<std::string> phases = phaseNames();
  auto first = std::find(phases.begin(), phases.end(), one), second = std::find(phases.begin(), phases.end(), other);
  return first != phases.end() && second != phases.end() && first > second;
}

} // namespace

void addCompileVerb(const Verb &app, const CompilerServices &services) {
  auto shared = std::make_shared<CompileArguments>();
  CompileArguments &asked = *shared;
  asked.options.openKernelRunner = services.openKernelRunner;
  CompileOptions &options = asked.options;
  Verb compile = app.verb("compile", "compile a run file into a run plan");
  addRunFile(compile, asked.file, asked.import);
  Option to = compile.option("-o,--output", asked.output, "the run plan to write");
  addTarget(compile, options.target);
  compile.option("--emit-kernels", options.kernelFolder, "folder for the plan's kernels: LEVEL.ptx or LEVEL.so");
  std::vector<std::string> stops = phaseNames();
  stops.push_back(planPhase);
  Option stop = compile
                    .option("--compile-to", options.compileTo,
                            "stop after a phase and print its IR, or the plan as protobuf text without machine code")
                    .oneOf(stops);
  Option from = compile.option("--compile-from", options.compileFrom, "go on after a phase with the IR of --ir")
                    .oneOf(phaseNames());
  Option ir = compile.option("--ir", options.irFile, "IR that --compile-to or --dump-phases left of that phase");
  from.needs(ir);
  ir.needs(from);
  compile.flag("--here", asked.import.isHere,
               "a run file without a cluster is for this machine, whatever its context.device_target is; `train` gives "
               "it");
  compile.option("--checkpoint", asked.checkpoint,
                 "the folder whose disk must have room for a checkpoint; `train` gives it");
  compile.flag("--check", options.check,
               "compare every kernel with the interpreter; the plan's runs look for writes past the end of buffers");
  compile.option("--dump-phases", options.dumpPhases, "folder for the IR after each phase and the plan as text");
  Option json =
      compile.flag("--json", asked.json, "print the plan, the reason for it and its prediction as JSON").excludes(stop);
  Option hosts = compile
                     .option("--elastic-hosts", asked.elasticHosts,
                             "K..N: also plans for K to N hosts as X.RANKS.plan beside X.plan, for run --elastic")
                     .excludes(stop)
                     .excludes(from)
                     .excludes(json);
  compile.option("--elastic-devices", asked.elasticDevices, "K..N: the same by numbers of devices, for one host")
      .excludes(hosts)
      .excludes(stop)
      .excludes(from)
      .excludes(json);
  compile.action([to, stop, shared, &services] {
    CompileOptions &options = shared->options;
    if (comesLater(options.compileFrom, options.compileTo))
      throw UsageError(fmt::format("--compile-to {} comes before --compile-from {}; stop at or after it",
                                   options.compileTo, options.compileFrom));
    if (to.count() == 0 && stop.count() == 0)
      throw UsageError("say where the plan goes with -o X.plan");
    const codegen::Target *target = codegen::findTarget(options.target);
    shared->import.needsCluster = target && !target->isHost(); // this machine is described as its processor
    return compileVerb(*shared, services);
  });
}

} // namespace espalier
