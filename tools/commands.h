// The subcommands of `espalier`. Each function adds the options and the action of one subcommand.
#pragma once

#include "tools/command_line/command_line.h"
#include "tools/command_line/exit_code.h"

namespace espalier {

/// Adds `run X.plan`: trains or evaluates.
void addRunCommand(const Verb &app);

/// Adds `train RUN.yaml`: compiles and runs.
void addTrainCommand(const Verb &app);

/// Adds `demo`: shows on this machine what the command does.
void addDemoCommand(const Verb &app);

/// Adds `generate X.plan`: continues prompts.
void addGenerateCommand(const Verb &app);

/// Adds `chat DIR`: talks to the model of a folder.
void addChatCommand(const Verb &app);

/// Adds `serve X.plan`: continues prompts over HTTP.
void addServeCommand(const Verb &app);

/// Adds `inspect PATH`: shows the contents of a plan, a checkpoint folder or a dataset.
void addInspectCommand(const Verb &app);

/// Adds `verify PATH`: checks every byte of a plan or a checkpoint.
void addVerifyCommand(const Verb &app);

/// Adds `bench plans FILE.csv ...`, which loads the compiler's verbs, `bench roofline` and `bench goodput`.
void addBenchCommand(const Verb &app, int argc, char **argv);

/// Loads libespalier_verbs.so and passes the whole command line to its CompilerEntry. Returns the exit code.
int runCompilerVerb(int argc, char **argv);

/// Adds `bench roofline X.plan` to `bench`: prints lower bounds of kernel times.
void addRooflineCommand(const Verb &bench);

/// Adds `bench goodput` to `bench`: simulates a run whose ranks fail.
void addGoodputCommand(const Verb &bench);

/// Adds `cluster generate | merge | check`: handles rank tables.
void addClusterCommand(const Verb &app);

/// Adds `launch --hosts FILE -- run X.plan ...`: starts a run on hosts without another launcher.
void addLaunchCommand(const Verb &app);

/// Adds `calibrate`: measures this machine and writes a cluster file.
void addCalibrateCommand(const Verb &app);

/// Adds `preflight`: measures all ranks and their links before a run.
void addPreflightCommand(const Verb &app);

/// Adds `plan`, `compile`, `import-args` and `explain`. They load the compiler's library on demand and pass their
/// arguments to it unchanged. `compile` verifies a plan before it writes the file.
void addCompilerCommands(const Verb &app, int argc, char **argv);

} // namespace espalier
