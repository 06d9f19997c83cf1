// The verbs of `espalier` that need the compiler: plan, compile, explain. The command loads this library only for them,
// so that `run` starts where LLVM is not installed.
#include "compiler/args_command.h"
#include "compiler/command_line.h"
#include "compiler/driver.h"
#include "compiler/import/explain.h"
#include "compiler/import/import_run.h"
#include "compiler/plan/choose_plan.h"
#include "compiler/plan/fit_memory.h"
#include "compiler/plan_command.h"
#include "compiler/write_whole.h"
#include "planner/answer/explain.h"
#include "runtime/plan_file.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace espalier {

namespace {

/// Exit codes of the command line.
enum ExitCode { Success = 0, UserError = 2, NothingFits = 3 };

struct RunArguments {
  std::string file;
  ImportOptions import;
};

void addRunArguments(CLI::App &verb, std::string &file, ImportOptions &import) {
  verb.add_option("RUN", file, "run file (YAML)")->required();
  verb.add_option("--cluster", import.cluster,
                  "cluster NAME, NAME:HOSTSxDEVICES or FILE instead of the file's; NAME --rank-table T.json takes hosts and "
                  "devices from a rank table; plan compares both");
  verb.add_option("--set", import.sets, "section.key=value over the file's value; may be repeated");
}

CLI::App *addPlanVerb(CLI::App &app, PlanArguments &arguments) {
  CLI::App *plan = app.add_subcommand("plan", "the best plans of a run with time, memory and reasons");
  addRunArguments(*plan, arguments.file, arguments.import);
  plan->add_option(
      "--system", arguments.import.system,
      "the software that will run the plan, NAME of configs/systems or FILE; default: the file's, or espalier");
  plan->add_flag("--all", arguments.all, "also plans that cannot be executed yet");
  CLI::Option *json = plan->add_flag("--json", arguments.json, "as JSON");
  plan->add_option("--pin", arguments.pin,
                   "only plans like this: tp=8,pp=2,stage_layers=[19,21]; all keys of planner.pin");
  plan->add_option("--devices", arguments.devices, "what if the cluster had so many devices");
  plan->add_option("--lose-node", arguments.loseNodes, "what if the cluster had so many hosts fewer");
  CLI::Option *whyNot = plan->add_option("--why-not", arguments.whyNot, "what speaks against a wish: tp=4,pp=12");
  // A wish is answered instead of a plan, an export is printed instead of the table.
  plan->add_option("--trace", arguments.trace, "file for the simulated step in Chrome's trace format")
      ->excludes(whyNot);
  plan->add_option("--export", arguments.exportTo, "print the plan as another system's flags or YAML")
      ->check(CLI::IsMember({"megatron", "mindformers", "torchtitan"}))
      ->excludes(whyNot)
      ->excludes(json);
  return plan;
}

CLI::App *addImportArgsVerb(CLI::App &app, ArgsArguments &arguments) {
  CLI::App *verb = app.add_subcommand("import-args", "a Megatron-LM script or list of flags as a run file");
  verb->add_option("FILE", arguments.file, "shell script or flags; nothing in it is executed")->required();
  verb->add_option("-o,--output", arguments.output, "the run file to write; default: standard output");
  verb->add_option("--cluster", arguments.cluster, "cluster NAME, or NAME:HOSTSxDEVICES over what the launcher states");
  verb->add_option("--base", arguments.base, "run file that holds what the flags do not say");
  return verb;
}

/// Empty where something is wrong or wishes for what is not built: nothing else is compiled in its place.
std::optional<RunConfig> importOrReport(const RunArguments &arguments) {
  ImportedRun imported = importRun(arguments.file, arguments.import);
  imported.diagnostics.refuse();
  fmt::print(stderr, "{}", imported.diagnostics.render());
  if (!imported.ok())
    return std::nullopt;
  return std::move(imported.config);
}

void addTarget(CLI::App &verb, std::string &target) {
  verb.add_option("--target", target, "what to compile for: cpu (default) or cuda");
}

/// Says what is wrong where it is none.
bool isTarget(const std::string &target, const std::string &file) {
  bool isKnown = target == "cpu" || target == "cuda";
  if (!isKnown)
    fmt::print(stderr, "{}: error: target '{}' is not known; this build compiles for cpu and cuda\n", file, target);
  return isKnown;
}

int compileVerb(const RunArguments &arguments, const std::string &output, const CompileOptions &options) {
  if (!isTarget(options.target, arguments.file))
    return UserError;
  std::optional<RunConfig> run = importOrReport(arguments);
  if (!run)
    return UserError;
  mlir::MLIRContext context;
  printDiagnostics(context);
  ChosenPlan chosen = choosePlan(context, *run, options.target);
  if (!chosen.plan) {
    fmt::print(stderr, "{}: {}\n", arguments.file, chosen.reason);
    return chosen.isInputError ? UserError : NothingFits;
  }
  std::optional<Compiled> compiled = compileRun(context, *run, *chosen.plan, options);
  if (!compiled)
    return UserError;
  if (!options.compileTo.empty()) {
    fmt::print("{}", compiled->ir);
    return Success;
  }
  std::string excess = memoryExcess(context, *run, *chosen.plan, compiled->plan);
  if (!excess.empty()) {
    fmt::print(stderr, "{}: {}\n", arguments.file, excess);
    return NothingFits;
  }
  if (!writeWhole(output, rt::planFileBytes(compiled->plan), "the plan"))
    return UserError;
  fmt::print("{}: {} on {} ranks: {}, global batch {}\n", output, run->model.name, chosen.plan->ranks(),
             describePlan(*chosen.plan), compiled->plan.settings().global_batch());
  return Success;
}

/// Whether phase `one` comes after phase `other`; false where one of them is not given.
bool comesLater(const std::string &one, const std::string &other) {
  std::vector<std::string> phases = phaseNames();
  auto first = std::find(phases.begin(), phases.end(), one), second = std::find(phases.begin(), phases.end(), other);
  return first != phases.end() && second != phases.end() && first > second;
}

int explainVerb(const RunArguments &arguments, const std::string &key, bool json) {
  ImportedRun imported = importRun(arguments.file, arguments.import);
  if (json) {
    fmt::print("{}", explainRunJson(imported, key));
  } else if (imported.ok() || !imported.keys.empty()) { // else the file cannot be read at all
    std::string text = explainRun(imported, key);
    if (text.empty())
      fmt::print(stderr, "espalier explain: error: {}\n", noSuchKey(key));
    fmt::print("{}", text);
    if (text.empty())
      return UserError;
  }
  fmt::print(stderr, "{}", imported.diagnostics.render());
  return imported.ok() ? Success : UserError;
}

} // namespace

} // namespace espalier

/// The entry that the command looks up in this library: a verb with its arguments, and how a check for GPUs gets its
/// device; returns the exit code.
extern "C" int espalierCompilerMain(int argc, char **argv, const espalier::OpenKernelRunner &openKernelRunner) {
  using namespace espalier;
  for (int i = 1; i < argc; ++i)
    if (!*argv[i]) { // options would take it for not given
      fmt::print(stderr, "espalier: error: an empty argument behind '{}'; is a variable not set?\n", argv[i - 1]);
      return UserError;
    }
  CLI::App app("the compiler's verbs", "espalier");
  app.require_subcommand(1);
  RunArguments arguments;
  CompileOptions options;
  options.openKernelRunner = openKernelRunner;
  std::string output, key;
  bool json = false;

  CLI::App *compile = app.add_subcommand("compile", "compile a run file into a run plan");
  addRunArguments(*compile, arguments.file, arguments.import);
  CLI::Option *to = compile->add_option("-o,--output", output, "the run plan to write");
  addTarget(*compile, options.target);
  compile->add_option("--emit-kernels", options.kernelFolder, "folder for the plan's kernels: LEVEL.ptx or LEVEL.so");
  CLI::Option *stop = compile->add_option("--compile-to", options.compileTo, "stop after a phase and print its IR")
                          ->check(CLI::IsMember(phaseNames()));
  CLI::Option *from =
      compile->add_option("--compile-from", options.compileFrom, "go on after a phase with the IR of --ir")
          ->check(CLI::IsMember(phaseNames()));
  CLI::Option *ir =
      compile->add_option("--ir", options.irFile, "IR that --compile-to or --dump-phases left of that phase");
  from->needs(ir);
  ir->needs(from);
  compile->add_flag(
      "--check", options.check,
      "compare every kernel with the interpreter; the plan's runs look for writes past the end of buffers");
  compile->add_option("--dump-phases", options.dumpPhases, "folder for the IR after each phase");

  CLI::App *explain = app.add_subcommand("explain", "where each value of a run file came from and what it does");
  addRunArguments(*explain, arguments.file, arguments.import);
  explain->add_option("KEY", key, "one key or section");
  explain->add_flag("--json", json, "as JSON");

  PlanArguments planArguments;
  CLI::App *plan = addPlanVerb(app, planArguments);
  addTarget(*plan, planArguments.target);
  ArgsArguments argsArguments;
  CLI::App *importArgs = addImportArgsVerb(app, argsArguments);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return reportParseError(app, error);
  }
  if (plan->parsed())
    return isTarget(planArguments.target, planArguments.file) ? planVerb(planArguments) : UserError;
  if (importArgs->parsed())
    return importArgsVerb(argsArguments);
  if (explain->parsed())
    return explainVerb(arguments, key, json);
  if (comesLater(options.compileFrom, options.compileTo)) {
    fmt::print(stderr, "espalier compile: error: --compile-to {} comes before --compile-from {}; stop at or after it\n",
               options.compileTo, options.compileFrom);
    return UserError;
  }
  if (to->empty() && stop->empty()) {
    fmt::print(stderr, "espalier compile: error: say where the plan goes with -o X.plan\n");
    return UserError;
  }
  return compileVerb(arguments, output, options);
}
