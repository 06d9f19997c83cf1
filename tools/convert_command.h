// The verbs `convert` and `import-hf`: what others' files are, in and out.
#pragma once

#include <CLI/CLI.hpp>

namespace espalier {

/// `convert SRC DST --to SYSTEM --model RUN.yaml`.
void addConvertCommand(CLI::App &app, int &exitCode);

/// `import-hf DIR -o RUN.yaml`.
void addImportHfCommand(CLI::App &app, int &exitCode);

} // namespace espalier
