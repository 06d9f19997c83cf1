// Handles every key of a config.json. Each key is a size, must have the one value that the architecture supports, has
// no effect on weights and computation, or is an error.
#include "compiler/import/huggingface/hf_config.h"

#include "compiler/import/model/expression.h"
#include "compiler/import/run/run_file_writer.h"
#include "runtime/json_reason.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <set>

namespace espalier {

namespace {

using Json = nlohmann::ordered_json;

constexpr int mostLevels = 8;

/// Keys of every config without effect: files, tokens, decoding, and the form of results.
const std::set<std::string> inertKeys = {"_name_or_path",
                                         "_attn_implementation_autoset",
                                         "architectures",
                                         "auto_map",
                                         "bos_token_id",
                                         "dtype",
                                         "eos_token_id",
                                         "gradient_checkpointing",
                                         "id2label",
                                         "is_llama_config",
                                         "label2id",
                                         "max_length",
                                         "model_type",
                                         "num_labels",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "output_past",
                                         "pad_token_id",
                                         "return_dict",
                                         "task_specific_params",
                                         "torch_dtype",
                                         "transformers.js_config",
                                         "transformers_version",
                                         "use_cache"};

/// One entry of `hf_config: sizes:`.
struct HfSize {
  std::string key, also;
  std::vector<std::string> sizes; ///< all get the value; the first one is written back
  std::string defaultText, times, dim;
  std::string unset;                          ///< meaning of null, and of a missing key without a default
  std::map<std::string, std::string> spelled; ///< choice here -> transformers' name
};

/// One entry of `hf_config: only:`: a key with one supported value. The entry is that value, or a map that contains it.
struct HfForm {
  std::string key;
  YamlPtr wanted;      ///< `is`; null if each item of a list must be equal to `each`
  std::string missing; ///< transformers' value for a missing key; empty means the supported value
  std::string least;   ///< an expression; numbers of at least this size are also supported
  std::string each;    ///< the only supported item of a list

  std::string text(const std::string &model) const;
};

/// `hf_config:` of a model file.
struct HfRules {
  std::string modelType, architecture;
  std::vector<HfSize> sizes;
  std::vector<HfForm> only;
  std::vector<std::pair<std::string, std::string>> implied; ///< sizes without a key -> expression that defines them
  std::set<std::string> ignored;
  std::vector<std::string>
      cleared; ///< keys without effect that are written as null, because their default may not fit the model
};

std::string textOf(const YamlNode &map, const char *key) {
  const YamlNode *node = map.find(key);
  return node && node->isScalar() ? node->text : "";
}

std::string HfForm::text(const std::string &model) const {
  if (!wanted)
    return fmt::format("{} has only lists of {}", model, each);
  std::string value = wanted->kind == YamlNode::Kind::Null ? "null" : flowText(*wanted);
  return fmt::format("{} has only {}{}", model, value, least.empty() ? "" : " or at least " + least);
}

HfForm readForm(const YamlEntry &entry) {
  if (!entry.value->isMap())
    return {entry.key, entry.value, "", "", ""};
  HfForm form = {entry.key, nullptr, textOf(*entry.value, "missing"), textOf(*entry.value, "least"),
                 textOf(*entry.value, "each")};
  for (const YamlEntry &part : entry.value->entries)
    if (part.key == "is")
      form.wanted = part.value;
  return form;
}

/// Returns nothing if the model file has no such section.
std::optional<HfRules> readRules(const Architecture &architecture) {
  const YamlNode *root = architecture.root->find("hf_config");
  if (!root || !root->isMap())
    return std::nullopt;
  HfRules rules;
  rules.modelType = textOf(*root, "model_type");
  rules.architecture = textOf(*root, "architecture");
  if (const YamlNode *sizes = root->find("sizes"))
    for (const YamlEntry &entry : sizes->entries) {
      HfSize size;
      size.key = entry.key;
      size.sizes = yamlTexts(entry.value->find("is"));
      size.defaultText = textOf(*entry.value, "default");
      size.times = textOf(*entry.value, "times");
      size.dim = textOf(*entry.value, "dim");
      size.unset = textOf(*entry.value, "unset");
      size.also = textOf(*entry.value, "also");
      if (const YamlNode *spelled = entry.value->find("spelled"))
        for (const YamlEntry &name : spelled->entries)
          size.spelled[name.key] = name.value->text;
      rules.sizes.push_back(std::move(size));
    }
  if (const YamlNode *only = root->find("only"))
    for (const YamlEntry &entry : only->entries)
      rules.only.push_back(readForm(entry));
  if (const YamlNode *implied = root->find("implied"))
    for (const YamlEntry &entry : implied->entries)
      rules.implied.emplace_back(entry.key, entry.value->text);
  rules.cleared = yamlTexts(root->find("cleared"));
  std::vector<std::string> ignored = yamlTexts(root->find("ignored"));
  rules.ignored.insert(ignored.begin(), ignored.end());
  return rules;
}

/// Returns the value at "a.b", or null.
const Json *valueAt(const Json &config, const std::string &path) {
  const Json *value = &config;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('.', begin), path.size());
    auto found = value->is_object() ? value->find(path.substr(begin, end - begin)) : value->end();
    if (!value->is_object() || found == value->end())
      return nullptr;
    value = &*found;
    begin = end + 1;
  }
  return value;
}

/// Returns the value as a YAML scalar, with strings unquoted.
std::string scalar(const Json &value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string dtypeOf(const Json &config) {
  for (const char *key : {"dtype", "torch_dtype"})
    if (const Json *value = valueAt(config, key); value && value->is_string())
      return value->get<std::string>();
  return "float32";
}

class HfImporter {
public:
  HfImporter(const std::string &file, const std::string &text, ImportedHf &result)
      : file(file), text(text), result(result) {
    result.diagnostics.addSource(file, text);
  }

  void run(const std::vector<std::string> &folders) {
    try {
      config = Json::parse(text, [](int depth, Json::parse_event_t, Json &) {
        if (depth > mostLevels)
          throw Json::other_error::create(501, "nested too deep", nullptr);
        return true;
      });
    } catch (const Json::exception &problem) {
      return result.diagnostics.error({file, 0, 0}, fmt::format("is no JSON: {}", rt::jsonReason(problem)));
    }
    if (!config.is_object())
      return result.diagnostics.error({file, 0, 0}, "a config.json is an object");
    if (!findModel(folders))
      return;
    writeModel();
    for (const HfForm &form : rules.only)
      requireOnly(form);
    reportRest();
    writeRun();
    result.yaml = yaml.text();
  }

  /// Checks only the keys with one supported value, for a config that has already been read.
  void runOnly(const Architecture &own, const HfRules &ownRules, const Json &read) {
    architecture = own;
    rules = ownRules;
    config = read;
    for (const HfForm &form : rules.only)
      requireOnly(form);
  }

  /// Returns transformers' value for a key that is null or missing. Returns null if it is unknown.
  Json standIn(const HfSize &size, bool isNull) const {
    if (!size.unset.empty() && (isNull || size.defaultText.empty()))
      return valueOf(size.unset);
    const std::string &text = size.defaultText;
    char *end = nullptr;
    double number = std::strtod(text.c_str(), &end);
    if (text.empty())
      return nullptr;
    if (*end == '\0')
      return number;
    return text == "true" || text == "false" ? Json(text == "true") : Json(text);
  }

private:
  /// Returns the location of a key: its first quoted occurrence in the file.
  SourceLocation place(const std::string &path) const {
    size_t at = text.find("\"" + path.substr(path.rfind('.') + 1) + "\"");
    if (at == std::string::npos)
      return {file, 0, 0};
    size_t line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
    size_t begin = text.rfind('\n', at);
    return {file, static_cast<int>(line + 1), static_cast<int>(begin == std::string::npos ? at + 1 : at - begin)};
  }
  void error(const std::string &key, const std::string &message) { result.diagnostics.error(place(key), message); }
  void report(const std::string &key, const std::string &effect, bool isUsed) {
    result.keys.push_back({key, place(key), effect, isUsed});
    known.insert(key.substr(0, key.find('.')));
  }

  bool findModel(const std::vector<std::string> &folders) {
    const Json *type = valueAt(config, "model_type");
    std::string wanted = type && type->is_string() ? type->get<std::string>() : "";
    std::vector<std::string> names;
    for (const std::string &modelFile : modelFiles(folders)) {
      Diagnostics own;
      std::optional<Architecture> candidate = loadArchitecture(modelFile, own);
      std::optional<HfRules> found = candidate ? readRules(*candidate) : std::nullopt;
      if (!found)
        continue;
      names.push_back(found->modelType);
      if (found->modelType != wanted)
        continue;
      architecture = std::move(candidate);
      rules = std::move(*found);
      requireArchitecture();
      return true;
    }
    error("model_type", fmt::format("no model file is for model_type '{}', there are {}{}", wanted,
                                    fmt::join(names, ", "), didYouMean(wanted, names)));
    return false;
  }

  void requireArchitecture() {
    const Json *names = valueAt(config, "architectures");
    if (!names || !names->is_array() || names->empty())
      return;
    if (names->front() != rules.architecture)
      error("architectures",
            fmt::format("{} is another model than {}, which {} describes", names->front().dump(), rules.architecture,
                        std::filesystem::path(architecture->file).filename().string()));
  }

  /// Returns a number of the config, or transformers' default.
  std::optional<double> number(const std::string &key, bool &isKnown) const {
    isKnown = true;
    auto size = std::ranges::find(rules.sizes, key, &HfSize::key);
    bool isSize = size != rules.sizes.end();
    for (const std::string &name : {key, isSize && !size->also.empty() ? size->also : key})
      if (const Json *value = valueAt(config, name); value && value->is_number())
        return value->get<double>();
    if (isSize && !size->defaultText.empty())
      return std::strtod(size->defaultText.c_str(), nullptr);
    isKnown = false;
    return std::nullopt;
  }

  void writeModel() {
    const std::string section = "model.model_config.";
    yaml.put("model.arch.type", rules.architecture);
    yaml.put(section + "type", architecture->configTypes.front());
    for (const HfSize &size : rules.sizes) {
      const std::string *key = &size.key;
      const Json *value = valueAt(config, size.key);
      if (!value && !size.also.empty() && (value = valueAt(config, size.also)))
        key = &size.also;
      if (value)
        report(*key, section + size.sizes.front(), /*isUsed=*/true);
      if (!value || value->is_null()) {
        bool isUnset = value && !size.unset.empty();
        std::string text = isUnset ? fmt::format("{}", valueOf(size.unset)) : size.defaultText;
        for (const std::string &each : size.sizes)
          if (!size.defaultText.empty()) // without a default, the model's own default is the same
            yaml.put(section + each, text, isUnset ? size.unset : "transformers' default");
        continue;
      }
      if (!value->is_number() && !value->is_string() && !value->is_boolean()) {
        error(*key, fmt::format("{} must be a number, a string or a truth value", *key));
        continue;
      }
      for (const std::string &each : size.sizes)
        yaml.put(section + each, size.times.empty() ? scalar(*value) : quotient(size, *value), *key);
    }
    for (const auto &[size, text] : rules.implied)
      yaml.put(section + size, fmt::format("{}", valueOf(text)), "as transformers does it: " + text);
    std::string dtype = dtypeOf(config);
    yaml.put(section + "param_init_type", dtype, "torch_dtype");
    yaml.put(section + "compute_dtype", dtype, "torch_dtype");
  }

  /// Evaluates an expression over the config's numbers.
  double valueOf(const std::string &text) const {
    return evaluateExpression(text, [this](const std::string &name, bool &isKnown) { return number(name, isKnown); })
        .value.value_or(0);
  }

  /// Returns a width divided by another number, which must divide it.
  std::string quotient(const HfSize &size, const Json &value) {
    bool isKnown = false;
    std::optional<double> under = number(size.times, isKnown);
    int64_t whole = value.is_number_integer() ? value.get<int64_t>() : 0;
    auto divisor = static_cast<int64_t>(under.value_or(0));
    if (whole < 1 || divisor < 1 || whole % divisor != 0) {
      error(size.key, fmt::format("{} ({}) is not a multiple of {} ({}), as {} requires", size.key, scalar(value),
                                  size.times, divisor, architecture->name));
      return "1";
    }
    return fmt::format("{}", whole / divisor);
  }

  void requireOnly(const HfForm &form) {
    const std::string &key = form.key;
    const Json *value = valueAt(config, key);
    if (!value && !form.missing.empty())
      return error(
          key, fmt::format("{} is not given, which means {}: {}", key, form.missing, form.text(architecture->name)));
    if (!value)
      return;
    report(key, form.text(architecture->name), /*isUsed=*/false);
    if (!isOf(form, *value))
      error(key, fmt::format("{} is {}, {}", key, value->dump().substr(0, 200), form.text(architecture->name)));
  }

  bool isOf(const HfForm &form, const Json &value) const {
    if (value.is_null())
      return true;
    if (value.is_number() && !form.least.empty() && value.get<double>() >= valueOf(form.least))
      return true;
    if (!form.each.empty())
      return value.is_array() && std::ranges::all_of(value, [&](const Json &item) { return item == form.each; });
    const YamlNode &wanted = *form.wanted;
    if (value.is_boolean())
      return yamlBool(wanted) == value.get<bool>();
    if (value.is_string())
      return wanted.text == value.get<std::string>();
    if (value.is_array())
      return value.dump() == flowText(wanted);
    return value.is_number() && wanted.isScalar() && !yamlBool(wanted) && valueOf(wanted.text) == value.get<double>();
  }

  void reportRest() {
    std::vector<std::string> names;
    for (const HfSize &size : rules.sizes)
      names.push_back(size.key);
    for (const auto &[key, value] : config.items()) {
      if (known.contains(key))
        continue;
      if (inertKeys.contains(key) || rules.ignored.contains(key))
        report(key, "changes neither the weights nor what is trained", /*isUsed=*/false);
      else
        error(key, fmt::format("{} is not known for {}{}; remove it where it changes nothing", key, rules.modelType,
                               didYouMean(key, names)));
    }
  }

  /// Writes settings that a config does not have: the planner chooses the plan, and the optimizer uses common values.
  void writeRun() {
    bool isHalf = dtypeOf(config) != "float32";
    yaml.put("runner_config.batch_size", "1");
    yaml.put("parallel.parallel_mode", "2");
    yaml.put("optimizer.type", "AdamW");
    if (isHalf)
      yaml.put("optimizer.master_weights", "True");
    yaml.put("lr_schedule.type", "constant");
    yaml.put("lr_schedule.learning_rate", "1e-5");
  }

  const std::string &file, &text;
  ImportedHf &result;
  Json config;
  std::optional<Architecture> architecture;
  HfRules rules;
  std::set<std::string> known;
  RunFileWriter yaml;
};

/// Returns the values that a config.json of the run's model must have.
Json expectedValues(const ImportedRun &run, const HfRules &rules) {
  Json values = Json::object();
  for (const HfSize &size : rules.sizes) {
    auto found = run.sizes.find(size.sizes.front());
    if (found == run.sizes.end())
      continue;
    const SizeRule *rule = run.architecture->sizeRule(size.sizes.front());
    const SizeValue &value = found->second;
    std::optional<double> number = value.number;
    if (!size.dim.empty())
      number = static_cast<double>(run.config.model.dims.at(size.dim));
    if (!size.times.empty() && number && values.contains(size.times))
      number = *number * values[size.times].get<double>();
    if (rule && rule->type == SizeRule::Type::String) {
      auto name = size.spelled.find(value.text);
      values[size.key] = name == size.spelled.end() ? value.text : name->second;
    } else if (rule && rule->type == SizeRule::Type::Bool) {
      values[size.key] = number.value_or(0) != 0;
    } else if (number && *number == static_cast<double>(static_cast<int64_t>(*number)) &&
               (!rule || rule->type == SizeRule::Type::Integer)) {
      values[size.key] = static_cast<int64_t>(*number);
    } else if (number) {
      values[size.key] = *number;
    }
  }
  return values;
}

std::optional<HfRules> rulesOf(const ImportedRun &run, Diagnostics &diagnostics) {
  std::optional<HfRules> rules = run.architecture ? readRules(*run.architecture) : std::nullopt;
  if (!rules && run.architecture)
    diagnostics.error({run.architecture->file, 0, 0}, "has no `hf_config:`, by which a config.json is written");
  return rules;
}

} // namespace

ImportedHf importHfConfig(const std::string &file, const std::string &text,
                          const std::vector<std::string> &searchPath) {
  ImportedHf result;
  HfImporter(file, text, result).run(configFolders(file, searchPath));
  return result;
}

std::string hfConfigText(const ImportedRun &run, const std::string &dtype, Diagnostics &diagnostics) {
  std::optional<HfRules> rules = rulesOf(run, diagnostics);
  if (!rules)
    return "";
  Json config = expectedValues(run, *rules);
  config["architectures"] = {rules->architecture};
  config["model_type"] = rules->modelType;
  config["torch_dtype"] = dtype;
  for (const std::string &key : rules->cleared)
    config[key] = nullptr;
  for (const HfForm &form : rules->only)
    if (!form.missing.empty() && form.wanted && form.wanted->kind == YamlNode::Kind::Null)
      config[form.key] = nullptr;
    else if (std::optional<bool> flag = form.wanted ? yamlBool(*form.wanted) : std::nullopt;
             flag && form.key.find('.') == std::string::npos)
      config[form.key] = *flag;
  return nlohmann::json(config).dump(2) + "\n"; // sorted, as in files that transformers writes
}

std::string agreeingHfConfig(const ImportedRun &run, const std::string &dtype, const std::string &file,
                             const std::string &text, Diagnostics &diagnostics) {
  std::optional<HfRules> rules = rulesOf(run, diagnostics);
  Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!rules || !config.is_object()) {
    diagnostics.error({file, 0, 0}, "is no config.json of this model");
    return "";
  }
  Json wanted = expectedValues(run, *rules);
  ImportedHf forms;
  HfImporter importer(file, text, forms);
  importer.runOnly(*run.architecture, *rules, config);
  for (const auto &[key, expected] : wanted.items()) {
    auto size = std::ranges::find(rules->sizes, key, &HfSize::key);
    const Json *value = valueAt(config, key);
    if (!value && !size->also.empty())
      value = valueAt(config, size->also);
    Json standIn = importer.standIn(*size, value != nullptr);
    if (!value || value->is_null())
      value = &standIn;
    bool agrees = value->is_null() || *value == expected;
    if (expected.is_string() && value->is_string()) { // an activation may have several names
      const SizeRule *rule = run.architecture->sizeRule(size->sizes.front());
      auto choice = rule->choices.find(value->get<std::string>());
      agrees = choice != rule->choices.end() && choice->second == run.sizes.at(rule->name).text;
    }
    if (!agrees)
      diagnostics.error({file, 0, 0}, fmt::format("{} is {}, the model has {}", key, value->dump(), expected.dump()));
  }
  for (const Diagnostic &fault : forms.diagnostics.sorted())
    diagnostics.error(fault.where, fault.message);
  if (dtypeOf(config) == dtype)
    return text;
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
  return config.dump(2) + "\n";
}

} // namespace espalier
