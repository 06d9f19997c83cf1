// A model file (configs/models/*.yaml) and its sizes: which model_config keys an architecture
// knows, their types, defaults and limits, all of it data. With a run file's values it becomes a
// ModelDescription.
#pragma once

#include "compiler/import/model_description.h"
#include "compiler/import/yaml.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// One entry of `sizes:`.
struct SizeRule {
  enum class Type { Integer, Number, String, Bool } type = Type::Integer;
  std::string name;
  std::vector<std::string> aliases;           ///< names that other releases use for it
  std::string defaultText;                    ///< expression, or string; empty: unset
  std::map<std::string, std::string> choices; ///< String only: accepted spelling -> meaning
  std::string least, most, below, only;       ///< limits as expressions, empty where there is none
  std::string action = "used", meaning;
  SourceLocation where;
};

/// A value of model.arch.type that chooses a model file only where the run file says so: {LlamaForCausalLM: {when:
/// expert_num - 1}} is a Llama whose expression over model_config and moe_config is above 0. A key that is not given
/// counts as 0.
struct ConditionalArch {
  std::string name, when;
  std::map<std::string, std::string> defaults; ///< of sizes, in place of those of `sizes:`
};

/// A model file that has been read but not yet given sizes.
struct Architecture {
  std::string file, name;
  std::vector<std::string> configTypes; ///< values that model_config.type may have; the first is written
  std::vector<std::string> archNames;   ///< values of model.arch.type
  std::vector<ConditionalArch> conditionalArchs;
  std::vector<SizeRule> sizes;
  YamlPtr root;

  /// The rule of a model_config key or of one of its aliases, or null.
  const SizeRule *sizeRule(const std::string &key) const;
};

/// A size after defaults.
struct SizeValue {
  std::optional<double> number; ///< Integer, Number, Bool (0 or 1)
  std::string text;             ///< String: the resolved choice
  SourceLocation where;         ///< in the run file when given there, else in the model file
  bool given = false;
  bool isFaulty = false; ///< reported: it has no number, and what follows from it is not reported once more
};
using SizeTable = std::map<std::string, SizeValue>;

/// Reads one model file, merged over the files that its `base_config` names. Empty when it is not usable; the faults
/// are in `diagnostics`.
std::optional<Architecture> loadArchitecture(const std::string &file, Diagnostics &diagnostics);

/// Takes the sizes that `modelConfig` (may be null) gives and fills in the rest. Keys that are not
/// sizes of the architecture are left to the caller.
SizeTable resolveSizes(const Architecture &architecture, const YamlNode *modelConfig, Diagnostics &diagnostics);

/// The model with all dimensions and attributes filled in. Checks names, arities and divisibility;
/// what is returned is complete exactly if no error was added.
ModelDescription describeModel(const Architecture &architecture, const SizeTable &sizes, Diagnostics &diagnostics);

} // namespace espalier
