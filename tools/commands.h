// The verbs of `espalier`, one function each: it adds the verb's options and what happens when it
// is chosen.
#pragma once

#include "compiler/command_line.h"

namespace espalier {

/// What the command returns to the shell.
enum ExitCode { Success = 0, Failed = 1, UserError = 2, DoesNotFit = 3 };

/// `run X.plan`: trains and evaluates.
void addRunCommand(const Verb &app);

/// `generate X.plan`: continues prompts.
void addGenerateCommand(const Verb &app);

/// `serve X.plan`: the same over HTTP.
void addServeCommand(const Verb &app);

/// `inspect PATH`: what a plan, a checkpoint folder or a dataset holds.
void addInspectCommand(const Verb &app);

/// `verify PATH`: every byte of a plan or a checkpoint.
void addVerifyCommand(const Verb &app);

/// `bench plans FILE.csv ...`: the planner against tables of published runs.
void addBenchCommand(const Verb &app);

/// `bench roofline X.plan`, a verb of `bench`: what its kernels take at least.
void addRooflineCommand(const Verb &bench);

/// `cluster generate | merge | check`: rank tables.
void addClusterCommand(const Verb &app);

/// `launch --hosts FILE -- run X.plan ...`: starts a run on hosts where nothing else does.
void addLaunchCommand(const Verb &app);

/// `calibrate`: measures this machine as a cluster file.
void addCalibrateCommand(const Verb &app);

/// `plan`, `compile`, `import-args`, `explain`: handed to the compiler's library with the words as given, which is
/// loaded only then. After a compilation the written plan is verified.
void addCompilerCommands(const Verb &app, int argc, char **argv);

} // namespace espalier
