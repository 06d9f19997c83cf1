// The verbs `convert` and `import-hf`: what others' files are, in and out.
#pragma once

#include "compiler/import/import_run.h"
#include "runtime/checkpoint/convert/convert.h"

#include "compiler/command_line.h"

namespace espalier {

/// The model of a run without what it computes, with the names that its model file has for others' files.
rt::ConvertedModel convertedModel(const ImportedRun &run);

/// `convert SRC DST --to SYSTEM --model RUN.yaml`.
void addConvertCommand(const Verb &app);

/// `import-hf DIR -o RUN.yaml`.
void addImportHfCommand(const Verb &app);

} // namespace espalier
