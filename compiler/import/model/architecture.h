// Reads a model file (configs/models/*.yaml) and its sizes: which model_config keys an architecture knows, and their
// types, defaults and limits. All of this is data. Together with a run file's values it becomes a ModelDescription.
#pragma once

#include "compiler/import/model/model_description.h"
#include "compiler/import/yaml/yaml.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// One entry of `sizes:`.
struct SizeRule {
  enum class Type { Integer, Number, String, Bool, List } type = Type::Integer;
  std::string name;
  std::vector<std::string> aliases;           ///< names that other releases use for this size
  std::string defaultText;                    ///< expression or string; empty if there is no default
  std::map<std::string, std::string> choices; ///< only for String: accepted spelling -> meaning
  std::string least, most, below, multiple,
      only; ///< limits as expressions; empty if there is no limit
  std::string action = "used", meaning;
  bool isConstant = false; ///< no key of run files sets it; `defaultText` is its value
  bool isShared =
      false; ///< every model file has the name (shared_sizes.h); another value than the only one is a refusal
  SourceLocation where;
};

/// A value of model.arch.type that selects a model file only under a condition on the run file. Example:
/// {LlamaForCausalLM: {when: expert_num - 1}} selects it for a Llama if the expression over model_config and moe_config
/// is above 0. A key that is not given counts as 0.
struct ConditionalArch {
  std::string name, when;
  std::map<std::string, std::string> defaults; ///< defaults of sizes that replace those of `sizes:`
};

/// A model file that has been read and has no sizes yet.
struct Architecture {
  std::string file, name;
  std::vector<std::string> configTypes; ///< valid values of model_config.type; the first is used in output
  std::vector<std::string> archNames;   ///< valid values of model.arch.type
  std::vector<ConditionalArch> conditionalArchs;
  std::vector<SizeRule> sizes;
  YamlPtr root;

  /// Returns the rule of a model_config key or of one of its aliases, or null.
  const SizeRule *sizeRule(const std::string &key) const;
  /// Returns the rule of a name in an expression, which may be a constant, or null.
  const SizeRule *sizeOrConstant(const std::string &name) const;
  /// Returns the rule of a key that the model file defines, or null.
  const SizeRule *ownSizeRule(const std::string &key) const;
};

/// A size after defaults are applied.
struct SizeValue {
  std::optional<double> number;         ///< for Integer, Number and Bool (0 or 1)
  std::string text;                     ///< for String: the resolved choice
  std::vector<std::string> items;       ///< for List
  SourceLocation where;                 ///< in the run file if the size is given there, else in the model file
  bool given = false, isShared = false; ///< isShared: as in SizeRule
  bool isFaulty =
      false; ///< an error has been reported; the size has no number, and errors that follow from it are not reported
};
using SizeTable = std::map<std::string, SizeValue>;

/// Reads one model file, merged over the files that its `base_config` names: those beside it, or else in models/ of one
/// of `folders`. Returns nothing if the file is not usable, and reports errors to `diagnostics`.
std::optional<Architecture> loadArchitecture(const std::string &file, Diagnostics &diagnostics,
                                             const std::vector<std::string> &folders = {});

/// Reads the sizes that `modelConfig` (may be null) gives, and fills in the others. The caller checks keys that are not
/// sizes of the architecture.
SizeTable resolveSizes(const Architecture &architecture, const YamlNode *modelConfig, Diagnostics &diagnostics);

/// Returns the model with all dimensions and attributes filled in. Checks names, arities and divisibility. The result
/// is complete if and only if no error was added.
ModelDescription describeModel(const Architecture &architecture, const SizeTable &sizes, Diagnostics &diagnostics);

} // namespace espalier
