// The verbs that prepare and look at data: `espalier data tokenize | verify | merge | index |
// train-tokenizer` and `espalier inspect PREFIX`.
#pragma once

#include <CLI/CLI.hpp>

namespace espalier {

/// Registers the subcommands on `app`. Their callbacks do the work; on an error they print it to
/// standard error and throw CLI::RuntimeError(2), which app.exit() turns into exit status 2.
void addDataCommands(CLI::App &app);

} // namespace espalier
