// A table of all keys that a run file may have: type, action, and effect in one sentence. The key checker, `explain`
// and configs/README.md are generated from it.
#pragma once

#include "compiler/import/model/architecture.h"

#include <string>
#include <vector>

namespace espalier {

/// Value types of keys.
enum class KeyType {
  Bool,
  Count,   ///< integer from 1 to kMostCount
  Index,   ///< integer of at least 0
  Integer, ///< any integer
  Number,
  String,
  Bytes,
  List, ///< list of scalars
  Any,
};
const char *keyTypeName(KeyType type);
constexpr int64_t kMostCount = 1000000000000;

/// used: has the same meaning here. mapped: another feature implements its meaning. accepted: has no effect here.
/// rejected: asks for a feature that is not implemented, which a warning or an error reports.
enum class KeyAction { Used, Mapped, Accepted, Rejected };
const char *keyActionName(KeyAction action);

/// A row of the key table.
struct KeyRule {
  std::string path; ///< for example "parallel_config.data_parallel" or "callbacks[].type"
  KeyType type = KeyType::Any;
  KeyAction action = KeyAction::Accepted;
  std::string effect;
};

/// One key of a run file and its effect.
struct KeyReport {
  std::string key, value;
  SourceLocation where;
  KeyAction action = KeyAction::Accepted;
  std::string effect;
};

/// Returns the table, in the order of configs/README.md. Keys of model_config that belong to one architecture are in
/// its model file.
std::vector<KeyRule> runKeys();

/// Checks every key and value of a run file against the table and the architecture's sizes (may be null), and returns a
/// report of each. Unknown keys and wrong types are errors.
std::vector<KeyReport> checkRunKeys(const YamlNode &root, const Architecture *architecture, Diagnostics &diagnostics);

} // namespace espalier
