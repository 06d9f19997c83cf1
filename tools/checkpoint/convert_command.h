// The subcommands `convert` and `import-hf`: conversion from and to the file formats of other systems.
#pragma once

#include "compiler/import/run/import_run.h"
#include "runtime/checkpoint/convert/convert.h"

#include "tools/command_line/command_line.h"

namespace espalier {

/// Returns the parameters of a run's model, with their names in other systems' files from the model file.
rt::ConvertedModel convertedModel(const ImportedRun &run);

/// Adds `convert SRC DST --to SYSTEM --model RUN.yaml`.
void addConvertCommand(const Verb &app);

/// Adds `import-hf DIR -o RUN.yaml`.
void addImportHfCommand(const Verb &app);

/// Writes a checkpoint that keeps its run file as a folder of transformers, with the adapters added to the weights.
/// Throws PlanError, or ReportedElsewhere after the reasons are printed.
void writeHf(const std::filesystem::path &checkpoint, const std::filesystem::path &target);

} // namespace espalier
