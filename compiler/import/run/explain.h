// Implements `espalier explain`: lists every key of a run file with its location, its effect and the reason, and the
// values that are derived from all keys.
#pragma once

#include "compiler/import/run/import_run.h"

#include <string>

namespace espalier {

/// Returns text for a terminal. Without a key, the text fits one screen: how many keys are used, mapped and ignored,
/// the derived values, and why keys are ignored. `isWhole` asks for all keys with their places instead. `key` restricts
/// the output to one key ("parallel_config.model_parallel"), a section, or the last part of a key. A key that the file
/// does not have is explained from the table. Returns an empty string for a key that no file can have.
std::string explainRun(const ImportedRun &run, const std::string &key = "", bool isWhole = false);

/// Returns an error text such as "no key 'optimizer.bets', did you mean 'optimizer.betas'?".
std::string noSuchKey(const std::string &key);

/// Returns the same information as JSON: {"schema": 1, "file", "keys": [{key, value, file, line, action, effect}],
/// "derived": [...], "errors": [...], "warnings": [...]}.
std::string explainRunJson(const ImportedRun &run, const std::string &key = "");

} // namespace espalier
