// Every key that a run file may have, as a table: its type, what we do with it, and the effect in
// one sentence. The key checker, `explain` and configs/README.md are made from it.
#pragma once

#include "compiler/import/architecture.h"

#include <string>
#include <vector>

namespace espalier {

enum class KeyType {
  Bool,
  Count,   ///< whole number from 1 to kMostCount
  Index,   ///< whole number, at least 0
  Integer, ///< any whole number
  Number,
  String,
  Bytes,
  List, ///< of scalars
  Any,
};
const char *keyTypeName(KeyType type);
constexpr int64_t kMostCount = 1000000000000;

/// used: honoured as it stands. mapped: its meaning is carried by something of ours. accepted: has
/// no effect here. rejected: asks for what is not built; a warning or an error says so.
enum class KeyAction { Used, Mapped, Accepted, Rejected };
const char *keyActionName(KeyAction action);

struct KeyRule {
  std::string path; ///< "parallel_config.data_parallel", "callbacks[].type"
  KeyType type = KeyType::Any;
  KeyAction action = KeyAction::Accepted;
  std::string effect;
};

/// One key of a run file with what became of it.
struct KeyReport {
  std::string key, value;
  SourceLocation where;
  KeyAction action = KeyAction::Accepted;
  std::string effect;
};

/// The table, in the order of configs/README.md. Keys of model_config that belong to one
/// architecture are in its model file.
std::vector<KeyRule> runKeys();

/// Checks every key and value of a run file against the table and the architecture's sizes (may be
/// null) and reports each. Unknown keys and wrong types are errors.
std::vector<KeyReport> checkRunKeys(const YamlNode &root, const Architecture *architecture, Diagnostics &diagnostics);

} // namespace espalier
