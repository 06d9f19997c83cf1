// `espalier explain`: every key of a run file with its place, what became of it and why, and what
// follows from all.
#pragma once

#include "compiler/import/import_run.h"

#include <string>

namespace espalier {

/// Text for a terminal. `key` narrows it to one key ("parallel_config.model_parallel"), a section,
/// or the last part of a key; empty: everything. A key that the file does not have is explained
/// from the table; empty for one that no file can have.
std::string explainRun(const ImportedRun &run, const std::string &key = "");

/// "no key 'optimizer.bets', did you mean 'optimizer.betas'?"
std::string noSuchKey(const std::string &key);

/// The same as JSON: {"file", "keys": [{key, value, file, line, action, effect}], "derived": [...],
/// "errors": [...], "warnings": [...]}.
std::string explainRunJson(const ImportedRun &run, const std::string &key = "");

} // namespace espalier
