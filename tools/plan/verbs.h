// The verbs that need the compiler. Each function adds the options and the action of one verb.
#pragma once

#include "tools/command_line/command_line.h"
#include "tools/plan/entry.h"

#include "compiler/import/run/import_run.h"

#include <string>

namespace espalier {

/// Adds the run file and the options that change it.
void addRunFile(const Verb &verb, std::string &file, ImportOptions &import);

/// Adds --target.
void addTarget(const Verb &verb, std::string &target);

/// Returns whether the target is known, and prints an error if not.
bool isTarget(const std::string &target, const std::string &file);

/// Adds `plan`: prints the best plans of a run with time, memory and reasons.
void addPlanVerb(const Verb &app);

/// Adds `compile`: writes the plan of a run. `services` must outlive the command line.
void addCompileVerb(const Verb &app, const CompilerServices &services);

/// Adds `import-args`: converts a Megatron-LM command line to a run file.
void addImportArgsVerb(const Verb &app);

/// Adds `explain`: prints where each value of a run file came from.
void addExplainVerb(const Verb &app);

/// Adds `bench plans`: prices tables of published runs.
void addBenchPlansVerb(const Verb &bench);

} // namespace espalier
