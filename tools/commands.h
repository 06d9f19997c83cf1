// The verbs of `espalier`, one function each: it adds the verb's options and what happens when it
// is chosen.
#pragma once

#include "compiler/exit_code.h"

#include <CLI/CLI.hpp>

namespace espalier {

/// `run X.plan`: trains and evaluates.
void addRunCommand(CLI::App &app, int &exitCode);

/// `generate X.plan`: continues prompts.
void addGenerateCommand(CLI::App &app, int &exitCode);

/// `serve X.plan`: the same over HTTP.
void addServeCommand(CLI::App &app, int &exitCode);

/// `inspect PATH`: what a plan, a checkpoint folder or a dataset holds.
void addInspectCommand(CLI::App &app, int &exitCode);

/// `verify PATH`: every byte of a plan or a checkpoint.
void addVerifyCommand(CLI::App &app, int &exitCode);

/// `bench plans FILE.csv ...`: the planner against tables of published runs.
void addBenchCommand(CLI::App &app, int &exitCode);

/// `bench roofline X.plan`, a verb of `bench`: what its kernels take at least.
void addRooflineCommand(CLI::App &bench, int &exitCode);

/// `cluster generate | merge | check`: rank tables.
void addClusterCommand(CLI::App &app, int &exitCode);

/// `launch --hosts FILE -- run X.plan ...`: starts a run on hosts where nothing else does.
void addLaunchCommand(CLI::App &app, int &exitCode);

/// `calibrate`: measures this machine as a cluster file.
void addCalibrateCommand(CLI::App &app, int &exitCode);

/// `plan`, `compile`, `import-args`, `explain`: handed to the compiler's library with the words as given, which is
/// loaded only then. After a compilation the written plan is verified.
void addCompilerCommands(CLI::App &app, int &exitCode, int argc, char **argv);

} // namespace espalier
