// Reads `sizes:` of a model file and resolves them against a run file's model_config.
#include "compiler/import/model/architecture.h"
#include "compiler/import/model/expression.h"
#include "compiler/import/model/model_parts.h"
#include "compiler/import/model/shared_sizes.h"
#include "compiler/import/yaml/base_config.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace espalier {
namespace {

const std::vector<std::string> modelKeys = {"name", "arch", "config", "sizes", "dims", "model", "segments"};
const std::vector<std::string> optionalKeys = {"attributes", "base_config", "parts", "weights", "hf_config", "modules"};
const std::vector<std::string> sizeKeys = {"type", "constant", "default",  "choices", "aliases", "least",
                                           "most", "below",    "multiple", "only",    "action",  "meaning"};

/// Short names of the number types that run files may use.
const std::map<std::string, std::string> shortNames = {{"bf16", "bfloat16"}, {"f16", "float16"}, {"fp16", "float16"},
                                                       {"half", "float16"},  {"f32", "float32"}, {"fp32", "float32"},
                                                       {"float", "float32"}};

void checkKeys(const YamlNode &map, const std::vector<std::string> &known, const std::string &place,
               Diagnostics &diagnostics) {
  for (const YamlEntry &entry : map.entries)
    if (std::find(known.begin(), known.end(), entry.key) == known.end())
      diagnostics.error(entry.keyWhere,
                        fmt::format("unknown key '{}' in {}{}", entry.key, place, didYouMean(entry.key, known)));
}

SizeRule readSizeRule(const YamlEntry &entry, Diagnostics &diagnostics) {
  SizeRule rule;
  rule.name = entry.key;
  rule.where = entry.keyWhere;
  if (!entry.value->isMap()) {
    diagnostics.error(entry.value->where, fmt::format("size '{}' must be a map such as {{default: 1}}", entry.key));
    return rule;
  }
  checkKeys(*entry.value, sizeKeys, "a size", diagnostics);
  auto text = [&](const char *key) {
    const YamlNode *node = entry.value->find(key);
    return node && node->isScalar() ? node->text : std::string();
  };
  const std::map<std::string, SizeRule::Type> types = {
      {"", SizeRule::Type::Integer},      {"int", SizeRule::Type::Integer}, {"number", SizeRule::Type::Number},
      {"string", SizeRule::Type::String}, {"bool", SizeRule::Type::Bool},   {"list", SizeRule::Type::List}};
  auto type = types.find(text("type"));
  if (type == types.end())
    diagnostics.error(entry.value->where, fmt::format("size '{}' has type '{}', want int, number, "
                                                      "string, bool or list",
                                                      entry.key, text("type")));
  else
    rule.type = type->second;
  rule.isConstant = !text("constant").empty();
  rule.defaultText = text(rule.isConstant ? "constant" : "default");
  rule.least = text("least");
  rule.most = text("most");
  rule.below = text("below");
  rule.multiple = text("multiple");
  rule.only = text("only");
  rule.meaning = text("meaning");
  if (!text("action").empty())
    rule.action = text("action");
  rule.aliases = yamlTexts(entry.value->find("aliases"));
  if (const YamlNode *choices = entry.value->find("choices")) {
    for (const std::string &choice : yamlTexts(choices))
      rule.choices[choice] = choice;
    for (const YamlEntry &choice : choices->entries)
      rule.choices[choice.key] = choice.value->text;
  }
  return rule;
}

ConditionalArch readConditionalArch(const YamlEntry &entry, Diagnostics &diagnostics) {
  ConditionalArch arch = {entry.key, "", {}};
  checkKeys(*entry.value, {"when", "defaults"}, "arch", diagnostics);
  if (const YamlNode *when = entry.value->find("when"))
    arch.when = when->text;
  else
    diagnostics.error(entry.keyWhere,
                      fmt::format("arch {} needs `when:`, the condition under which it is chosen", entry.key));
  if (const YamlNode *defaults = entry.value->find("defaults"))
    for (const YamlEntry &size : defaults->entries)
      arch.defaults[size.key] = size.value->text;
  return arch;
}

/// Reads `arch:`: a name, or a list whose items are names or maps from a name to its condition.
void readArchNames(const YamlNode &node, Architecture &architecture, Diagnostics &diagnostics) {
  if (node.isScalar())
    architecture.archNames = {node.text};
  for (const YamlPtr &item : node.items) {
    if (item->isScalar())
      architecture.archNames.push_back(item->text);
    else if (!item->isMap())
      diagnostics.error(item->where,
                        fmt::format("arch must list names or {{NAME: {{when: EXPR}}}}, got {}", flowText(*item)));
    for (const YamlEntry &entry : item->entries)
      architecture.conditionalArchs.push_back(readConditionalArch(entry, diagnostics));
  }
}

/// Resolves sizes in the order of the model file, so that a default may refer to an earlier size. A reference to a
/// later size is resolved by recursion, whose depth is at most the number of sizes.
class SizeResolver {
public:
  SizeResolver(const Architecture &architecture, const YamlNode *modelConfig, Diagnostics &diagnostics)
      : architecture(architecture), modelConfig(modelConfig), diagnostics(diagnostics) {}

  SizeTable run() {
    for (const SizeRule &rule : architecture.sizes)
      resolve(rule);
    return std::move(table);
  }

private:
  /// Returns the entry of a size under any of its names. If one file is merged over another, the entry of the upper
  /// file wins.
  const YamlEntry *givenEntry(const SizeRule &rule) {
    const YamlEntry *found = nullptr;
    for (size_t i = 0; !rule.isConstant && modelConfig && i < modelConfig->entries.size(); ++i) {
      const YamlEntry &entry = modelConfig->entries[i];
      bool isAlias = std::find(rule.aliases.begin(), rule.aliases.end(), entry.key) != rule.aliases.end();
      if (entry.key != rule.name && !isAlias)
        continue;
      // Two names of other releases may have the same value.
      bool isRepeated = found && found->key != rule.name && isAlias && found->value->text == entry.value->text;
      if (found && !isRepeated && !isMergedBelow(*found, entry))
        diagnostics.error(entry.keyWhere,
                          fmt::format("'{}' and '{}' mean the same, keep one of them", found->key, entry.key));
      found = &entry;
    }
    return found;
  }

  void resolve(const SizeRule &rule) {
    if (table.count(rule.name))
      return;
    SizeValue &value = table[rule.name]; // inserted first, so that a default that refers to itself reads "unset"
    value.where = rule.where;
    value.isShared = rule.isShared;
    const YamlEntry *given = givenEntry(rule);
    if (given && given->value->kind != YamlNode::Kind::Null) {
      value.given = true;
      value.where = given->value->where;
      readGiven(rule, *given->value, value);
    } else if (rule.type == SizeRule::Type::String) {
      value.text = rule.choices.count(rule.defaultText) ? rule.choices.at(rule.defaultText) : rule.defaultText;
    } else if (rule.type == SizeRule::Type::Bool && !isExpression(rule.defaultText)) {
      value.number = rule.defaultText == "true";
    } else if (!rule.defaultText.empty()) {
      ExpressionValue result = evaluate(rule.defaultText, rule.where);
      value.number = result.value;
      value.isFaulty = std::ranges::any_of(result.names, [&](const std::string &name) { return isFaulty(name); });
    }
    checkLimits(rule, value);
  }
  bool isFaulty(const std::string &name) const {
    const SizeRule *rule = architecture.sizeOrConstant(name);
    auto found = rule ? table.find(rule->name) : table.end();
    return found != table.end() && found->second.isFaulty;
  }

  static bool isMergedBelow(const YamlEntry &below, const YamlEntry &entry) {
    const std::string &lower = below.value->where.file, &upper = entry.value->where.file;
    return lower != upper && lower != kSetSource && upper != kSetSource;
  }

  /// Returns whether the default or limit of a Bool is an expression and not a literal.
  static bool isExpression(const std::string &text) { return !text.empty() && text != "true" && text != "false"; }

  void readGiven(const SizeRule &rule, const YamlNode &node, SizeValue &value) {
    auto wrong = [&](const char *want) {
      diagnostics.error(node.where, fmt::format("{} must be {}, got {}", rule.name, want, flowText(node)));
      value.isFaulty = true;
    };
    switch (rule.type) {
    case SizeRule::Type::Integer:
      if (std::optional<int64_t> integer = yamlInteger(node))
        value.number = static_cast<double>(*integer);
      else if (std::optional<double> number = yamlNumber(node); number && *number > 1e12)
        value.number = number; // the check of limits reports it
      else
        wrong("a whole number");
      break;
    case SizeRule::Type::Number:
      value.number = yamlNumber(node);
      if (!value.number)
        wrong("a number");
      break;
    case SizeRule::Type::Bool:
      if (std::optional<bool> flag = yamlBool(node))
        value.number = *flag;
      else
        wrong("true or false");
      break;
    case SizeRule::Type::String:
      readChoice(rule, node, value);
      break;
    case SizeRule::Type::List:
      value.items = yamlTexts(&node);
      if (!node.isSequence())
        wrong("a list");
      break;
    }
  }

  void readChoice(const SizeRule &rule, const YamlNode &node, SizeValue &value) {
    auto choice = rule.choices.find(node.text);
    if (choice != rule.choices.end()) {
      value.text = choice->second;
      return;
    }
    std::vector<std::string> names;
    for (const auto &[name, meaning] : rule.choices)
      names.push_back(name);
    auto shortName = shortNames.find(node.text);
    bool isShort = shortName != shortNames.end() && rule.choices.count(shortName->second);
    report(rule, node.where,
           fmt::format("{} has no choice '{}', there are {}{}", rule.name, flowText(node), fmt::join(names, ", "),
                       didYouMean(isShort ? shortName->second : node.text, names)));
    if (auto own = rule.choices.find(rule.defaultText); rule.isShared && own != rule.choices.end())
      value.text = own->second; // the plan without a refused choice
  }

  /// Reports a value that the architecture does not have. A model file's own names are errors.
  void report(const SizeRule &rule, const SourceLocation &where, std::string message) {
    if (rule.isShared)
      diagnostics.refusal(where, std::move(message));
    else
      diagnostics.error(where, std::move(message));
  }

  ExpressionValue evaluate(const std::string &text, const SourceLocation &where) {
    ExpressionValue result = evaluateExpression(text, [&](const std::string &name, bool &known) {
      const SizeRule *rule = architecture.sizeOrConstant(name);
      known = rule != nullptr;
      if (rule)
        resolve(*rule);
      return rule ? table[rule->name].number : std::nullopt;
    });
    if (!result.fault.empty())
      diagnostics.error(where, result.fault);
    return result;
  }

  void checkLimits(const SizeRule &rule, SizeValue &value) {
    if (!value.number)
      return;
    double number = *value.number;
    auto limit = [&](const std::string &text) {
      return rule.type == SizeRule::Type::Bool && !isExpression(text) ? std::optional<double>(text == "true")
                                                                      : evaluate(text, rule.where).value;
    };
    auto refuse = [&](const char *relation, double bound, const std::string &text) {
      value.isFaulty = true;
      std::string name = text == fmt::format("{:.10g}", bound) ? "" : fmt::format(" ({})", text);
      const SizeRule *limiting = architecture.sizeRule(text); // a size that is only a limit says why it is one
      std::string reason = limiting && limiting->action == "accepted" ? ": " + limiting->meaning : "";
      diagnostics.error(value.where, fmt::format("{} is {:.10g}, must be {} {:.10g}{}{}", rule.name, number, relation,
                                                 bound, name, reason));
    };
    bool isInteger = rule.type == SizeRule::Type::Integer;
    std::string least = rule.least.empty() && isInteger ? "1" : rule.least;
    if (isInteger && number > 1e12)
      refuse("at most", 1e12, "1e+12");
    if (!least.empty())
      if (std::optional<double> bound = limit(least); bound && number < *bound)
        refuse("at least", *bound, least);
    if (!rule.most.empty())
      if (std::optional<double> bound = limit(rule.most); bound && number > *bound)
        refuse("at most", *bound, rule.most);
    if (!rule.below.empty())
      if (std::optional<double> bound = limit(rule.below); bound && number >= *bound)
        refuse("below", *bound, rule.below);
    if (!rule.multiple.empty() && !value.isFaulty)
      if (std::optional<double> bound = limit(rule.multiple); bound && *bound > 0 && std::fmod(number, *bound) != 0)
        refuse("a multiple of", *bound, rule.multiple);
    if (!rule.only.empty())
      if (std::optional<double> bound = limit(rule.only); bound && number != *bound)
        report(rule, value.where, fmt::format("{} can only be {} here: {}", rule.name, rule.only, rule.meaning));
    if (value.isFaulty)
      value.number.reset();
  }

  const Architecture &architecture;
  const YamlNode *modelConfig;
  Diagnostics &diagnostics;
  SizeTable table;
};

} // namespace

const SizeRule *Architecture::sizeOrConstant(const std::string &name) const {
  for (const SizeRule &rule : sizes)
    if (rule.name == name || std::find(rule.aliases.begin(), rule.aliases.end(), name) != rule.aliases.end())
      return &rule;
  return nullptr;
}

const SizeRule *Architecture::sizeRule(const std::string &key) const {
  const SizeRule *rule = sizeOrConstant(key);
  return rule && !rule->isConstant ? rule : nullptr;
}

const SizeRule *Architecture::ownSizeRule(const std::string &key) const {
  const SizeRule *rule = sizeRule(key);
  return rule && !rule->isShared ? rule : nullptr;
}

std::optional<Architecture> loadArchitecture(const std::string &file, Diagnostics &diagnostics,
                                             const std::vector<std::string> &folders) {
  Architecture architecture;
  architecture.file = file;
  architecture.root =
      loadYamlMap(file, "a model file is a map with name, sizes, dims, model and segments", diagnostics);
  if (!architecture.root)
    return std::nullopt;
  std::vector<std::string> modelFolders;
  for (const std::string &folder : folders)
    modelFolders.push_back(folder + "/models");
  size_t before = diagnostics.count();
  architecture.root = mergeBaseConfigs(architecture.root, file, diagnostics, BaseMerge::Keys, modelFolders);
  if (diagnostics.count() > before)
    return std::nullopt; // keys of the base are missing
  std::vector<std::string> known = modelKeys;
  known.insert(known.end(), optionalKeys.begin(), optionalKeys.end());
  checkKeys(*architecture.root, known, "a model file", diagnostics);
  bool complete = true;
  for (const std::string &key : modelKeys)
    if (!architecture.root->find(key)) {
      diagnostics.error({file, 1, 1}, fmt::format("model file has no '{}'", key));
      complete = false;
    }
  if (!complete)
    return std::nullopt;
  architecture.root = withParts(architecture.root, diagnostics);
  architecture.name = architecture.root->find("name")->text;
  architecture.configTypes = yamlTexts(architecture.root->find("config"));
  if (architecture.configTypes.empty())
    architecture.configTypes.emplace_back();
  readArchNames(*architecture.root->find("arch"), architecture, diagnostics);
  for (const YamlEntry &entry : architecture.root->find("sizes")->entries)
    if (entry.value->kind != YamlNode::Kind::Null) // null takes a size of the base file away
      architecture.sizes.push_back(readSizeRule(entry, diagnostics));
  addSharedSizes(architecture);
  return architecture;
}

SizeTable resolveSizes(const Architecture &architecture, const YamlNode *modelConfig, Diagnostics &diagnostics) {
  return SizeResolver(architecture, modelConfig, diagnostics).run();
}

} // namespace espalier
