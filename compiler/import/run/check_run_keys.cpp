// Compares a run file with the table of keys. Every leaf is reported, or is an error with the nearest known name.
#include "compiler/import/run/foreign_names.h"
#include "compiler/import/run/run_keys.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>

namespace espalier {
namespace {

class KeyChecker {
public:
  KeyChecker(const Architecture *architecture, Diagnostics &diagnostics)
      : architecture(architecture), diagnostics(diagnostics) {
    for (KeyRule &rule : runKeys()) {
      for (size_t dot = rule.path.find('.'); dot != std::string::npos; dot = rule.path.find('.', dot + 1))
        inner.insert(rule.path.substr(0, dot));
      std::string path = rule.path;
      rules.emplace(path, std::move(rule));
    }
    inner.insert("");
  }

  std::vector<KeyReport> run(const YamlNode &root) {
    visitMap(root, "", "");
    return std::move(reports);
  }

private:
  /// `path` is the key's path in the file ("callbacks[0].type"), and `rulePath` its path in the table
  /// ("callbacks[].type").
  void visitMap(const YamlNode &map, const std::string &path, const std::string &rulePath) {
    for (const YamlEntry &entry : map.entries) {
      std::string dot = path.empty() ? "" : ".";
      visit(entry, path + dot + entry.key, rulePath + dot + entry.key, rulePath);
    }
  }

  void visit(const YamlEntry &entry, const std::string &path, const std::string &rulePath, const std::string &parent) {
    const YamlNode &value = *entry.value;
    if (parent == "model.model_config" && architecture)
      if (const SizeRule *size = architecture->sizeRule(entry.key)) {
        bool used = size->action != "accepted";
        reports.push_back(
            {path, flowText(value), entry.keyWhere, used ? KeyAction::Used : KeyAction::Accepted, size->meaning});
        return; // the size resolver checks its value
      }
    bool isInner = inner.count(rulePath) > 0;
    if (isInner && value.isMap())
      return visitMap(value, path, rulePath);
    if (value.isSequence() && inner.count(rulePath + "[]")) {
      for (size_t i = 0; i < value.items.size(); ++i)
        visitItem(*value.items[i], fmt::format("{}[{}]", path, i), rulePath + "[]");
      return;
    }
    auto rule = findRule(rulePath);
    if (rule != rules.end()) {
      if (!isCheckedLater(rule->second))
        checkType(rule->second, path, value);
      reports.push_back({path, flowText(value), entry.keyWhere, rule->second.action, rule->second.effect});
    } else if (isInner || inner.count(rulePath + "[]")) {
      if (value.kind != YamlNode::Kind::Null) // an empty section has no effect
        diagnostics.error(value.where, fmt::format("{} must be a {}, got {}", path, isInner ? "map" : "list of maps",
                                                   flowText(value)));
    } else if (parent != "model.model_config" || architecture) { // only the architecture knows the keys of this section
      diagnostics.error(entry.keyWhere, fmt::format("unknown key '{}'{}{}", entry.key,
                                                    parent.empty() ? "" : " in " + parent, hint(entry.key, parent)));
    }
  }

  /// Returns the rule of a path, or that of all paths with its beginning: "callbacks[].*".
  std::map<std::string, KeyRule>::const_iterator findRule(const std::string &path) const {
    auto rule = rules.find(path);
    for (auto each = rules.begin(); rule == rules.end() && each != rules.end(); ++each)
      if (each->first.ends_with('*') && path.starts_with(each->first.substr(0, each->first.size() - 1)))
        rule = each;
    return rule;
  }

  void visitItem(const YamlNode &item, const std::string &path, const std::string &rulePath) {
    if (item.isMap())
      visitMap(item, path, rulePath);
    else
      diagnostics.error(item.where, fmt::format("{} must be a map, got {}", path, flowText(item)));
  }

  /// Returns a suggestion for an unknown key of `parent`: the same name in another section, or a similar name.
  std::string hint(const std::string &key, const std::string &parent) const {
    std::vector<std::string> paths;
    for (const std::string &own : ownNamesOf(key))
      if (rules.contains(own) || isSize(own))
        return fmt::format(", did you mean '{}'?", own);
    if (architecture && architecture->sizeRule(key))
      paths.push_back("model.model_config." + key);
    for (const auto &[path, rule] : rules)
      if (path.ends_with("." + key) && path.find("[]") == std::string::npos && rule.action != KeyAction::Accepted &&
          !path.starts_with("eval_dataset"))
        paths.push_back(path);
    if (paths.empty() || paths.size() > 3)
      return didYouMean(key, keysOf(parent));
    return fmt::format(", did you mean '{}'?", fmt::join(paths, "' or '"));
  }

  /// Returns whether a path is a size of the model, by its own name.
  bool isSize(const std::string &path) const {
    constexpr std::string_view section = "model.model_config.";
    std::string name = path.substr(path.starts_with(section) ? section.size() : 0);
    const SizeRule *size = architecture && path.starts_with(section) ? architecture->sizeRule(name) : nullptr;
    return size && size->name == name;
  }

  std::vector<std::string> keysOf(const std::string &parent) const {
    std::string prefix = parent.empty() ? "" : parent + ".";
    std::set<std::string> keys;
    for (const auto &[path, rule] : rules)
      if (path.starts_with(prefix) && !path.ends_with('*'))
        keys.insert(path.substr(prefix.size(), path.find_first_of(".[", prefix.size()) - prefix.size()));
    if (parent == "model.model_config" && architecture)
      for (const SizeRule &size : architecture->sizes)
        if (!size.isConstant) {
          keys.insert(size.name);
          keys.insert(size.aliases.begin(), size.aliases.end());
        }
    return {keys.begin(), keys.end()};
  }

  /// Returns whether another reader checks the value: a machine constant, because cluster files have the same keys, or
  /// a size of the model in `moe_config`.
  bool isCheckedLater(const KeyRule &rule) const {
    constexpr std::string_view experts = "moe_config.";
    if (rule.path.starts_with(experts))
      return architecture && architecture->ownSizeRule(rule.path.substr(experts.size()));
    return rule.path.starts_with("cluster.") && rule.type != KeyType::String;
  }

  void checkType(const KeyRule &rule, const std::string &path, const YamlNode &value) {
    if (value.kind == YamlNode::Kind::Null || rule.type == KeyType::Any)
      return; // null means "not given"
    std::optional<int64_t> integer = yamlInteger(value);
    bool fits = false;
    switch (rule.type) {
    case KeyType::Bool:
      fits = yamlBool(value).has_value();
      break;
    case KeyType::Count:
      fits = integer && *integer >= 1 && *integer <= kMostCount;
      break;
    case KeyType::Index:
      fits = integer && *integer >= 0;
      break;
    case KeyType::Integer:
      fits = integer.has_value();
      break;
    case KeyType::Number:
      fits = yamlNumber(value).has_value();
      break;
    case KeyType::Bytes:
      fits = yamlBytes(value).has_value();
      break;
    case KeyType::String:
      fits = value.isScalar();
      break;
    case KeyType::List:
      fits = value.isSequence() || value.isScalar();
      break;
    case KeyType::Any:
      fits = true;
      break;
    }
    const std::map<KeyType, const char *> wanted = {{KeyType::Bool, "True or False"},
                                                    {KeyType::Count, "a whole number of at least 1"},
                                                    {KeyType::Index, "a whole number of at least 0"},
                                                    {KeyType::Integer, "a whole number"},
                                                    {KeyType::Number, "a number"},
                                                    {KeyType::Bytes, "a size such as 30GB, at most 1048576TB"},
                                                    {KeyType::String, "a string"},
                                                    {KeyType::List, "a list"}};
    if (fits)
      return;
    std::optional<double> number = yamlNumber(value);
    bool isCounted = rule.type == KeyType::Count || rule.type == KeyType::Index || rule.type == KeyType::Integer;
    int64_t most = rule.type == KeyType::Count ? kMostCount : std::numeric_limits<int64_t>::max();
    double beyond = rule.type == KeyType::Count ? static_cast<double>(kMostCount) : std::nextafter(0x1p63, 0);
    bool isTooLarge = isCounted && number && *number > beyond;
    std::string fix;
    if (isCounted && !isTooLarge && !integer && number && std::rint(*number) == *number && *number >= 0)
      fix = fmt::format("; write {:.0f}", *number); // 1e3 is not an integer in YAML
    diagnostics.error(value.where, fmt::format("{} must be {}, got {}{}", path,
                                               isTooLarge ? fmt::format("at most {}", most) : wanted.at(rule.type),
                                               flowText(value), fix));
  }

  const Architecture *architecture;
  Diagnostics &diagnostics;
  std::map<std::string, KeyRule> rules;
  std::set<std::string> inner; ///< paths of keys that have subkeys
  std::vector<KeyReport> reports;
};

} // namespace

std::vector<KeyReport> checkRunKeys(const YamlNode &root, const Architecture *architecture, Diagnostics &diagnostics) {
  return KeyChecker(architecture, diagnostics).run(root);
}

} // namespace espalier
