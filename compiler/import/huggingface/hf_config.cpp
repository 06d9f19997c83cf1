// Handles every key of a config.json. Each key is a size, must have the one value that the architecture supports, has
// no effect on weights and computation, or is an error.
#include "compiler/import/huggingface/hf_config.h"

#include "compiler/import/huggingface/hf_json.h"
#include "compiler/import/huggingface/hf_rules.h"
#include "compiler/import/huggingface/hf_values.h"
#include "compiler/import/huggingface/size_faults.h"
#include "compiler/import/model/expression.h"
#include "compiler/import/yaml/config_files.h"
#include "compiler/import/yaml/run_file_writer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace espalier {

namespace {

class HfImporter {
public:
  HfImporter(const std::string &file, const std::string &text, ImportedHf &result)
      : file(file), text(text), result(result) {
    result.diagnostics.addSource(file, text);
  }

  void run(const std::vector<std::string> &folders) {
    if (std::string fault = readHfConfig(text, config); !fault.empty())
      return result.diagnostics.error({file, 0, 0}, fault);
    if (std::string fault = quantizationFault(config); !fault.empty())
      error("quantization_config", fault);
    takeTextModel();
    if (!findModel(folders))
      return;
    writeModel();
    for (const HfForm &form : rules.only)
      requireOnly(form);
    reportRest();
    writeRun();
    result.yaml = yaml.text();
    if (!result.diagnostics.hasErrors())
      checkSizes();
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
    if (!size.unset.empty() && size.unset != "false" && (isNull || size.defaultText.empty()))
      return valueOf(size.unset);
    const std::string &text = isNull && !size.unset.empty() ? size.unset : size.defaultText;
    char *end = nullptr;
    double number = std::strtod(text.c_str(), &end);
    if (text.empty())
      return nullptr;
    if (*end == '\0')
      return number;
    return text == "true" || text == "false" ? Json(text == "true") : Json(text);
  }

private:
  /// Returns the location of a key: its first quoted occurrence in the file, or behind `text_config`.
  SourceLocation place(const std::string &path) const {
    std::string quoted = "\"" + path.substr(path.rfind('.') + 1) + "\"";
    size_t at = text.find(quoted, textConfig);
    at = at == std::string::npos ? text.find(quoted) : at;
    if (at == std::string::npos)
      return {file, 0, 0};
    size_t line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
    size_t begin = text.rfind('\n', at);
    return {file, static_cast<int>(line + 1), static_cast<int>(begin == std::string::npos ? at + 1 : at - begin)};
  }
  void error(const std::string &key, const std::string &message) { result.diagnostics.error(place(key), message); }
  void report(const std::string &key, const std::string &effect, bool isUsed) {
    result.keys.push_back({key, place(key), effect, isUsed});
    known.insert(key);
    for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1))
      known.insert(key.substr(0, dot));
  }

  /// Continues with the text model of a model that also reads images or sounds, and reports its other parts.
  void takeTextModel();
  bool findModel(const std::vector<std::string> &folders);

  void requireArchitecture() {
    const Json *names = valueAt(config, "architectures");
    if (!names || !names->is_array() || names->empty())
      return;
    if (names->front() != rules.architecture)
      error("architectures",
            fmt::format("{} is another model than {}, which {} describes; {}", names->front().dump(),
                        rules.architecture, std::filesystem::path(architecture->file).filename().string(), portWay));
  }

  /// Returns a number of the config, or transformers' default.
  std::optional<double> number(const std::string &key, bool &isKnown) const {
    isKnown = true;
    auto size = std::ranges::find(rules.sizes, key, &HfSize::key);
    bool isSize = size != rules.sizes.end();
    for (const std::string &name : isSize ? size->places() : std::vector{key})
      if (const Json *value = valueAt(config, name); value && value->is_number())
        return value->get<double>();
    if (isSize && !size->defaultText.empty())
      return std::strtod(size->defaultText.c_str(), nullptr);
    isKnown = false;
    return std::nullopt;
  }

  void writeModel();

  /// Returns whether transformers' value of a key without a default is that of the model file's size.
  bool hasDefault(const HfSize &size, const std::string &name, const std::string &value) const {
    const SizeRule *rule = architecture->sizeRule(name);
    char *end = nullptr;
    double own = rule ? std::strtod(rule->defaultText.c_str(), &end) : 0;
    bool isNumber = rule && !rule->defaultText.empty() && *end == '\0';
    return size.defaultText.empty() && (!size.times.empty() || !isNumber || own == std::strtod(value.c_str(), nullptr));
  }

  /// Reports a value that cannot be a value of the size, such as null where transformers has no meaning for it.
  /// Returns whether there is such a fault.
  bool isUnusable(const HfSize &size, const std::string &key, const Json &value);

  /// Reports sizes that are out of range or contradict each other, one error for each key.
  void checkSizes();

  /// Returns the key that gives `size` a meaning.
  std::string conditionKey(const HfSize &size) const;

  /// Returns the config's value of that key; empty if it has none.
  std::string conditionOf(const HfSize &size) const;

  /// Returns whether the config's other keys give a key a meaning.
  bool applies(const HfSize &size) const;

  /// Reports a word that the size does not have.
  void requireChoice(const HfSize &size, const std::string &key, const std::string &value);

  /// Evaluates an expression over the config's numbers.
  double valueOf(const std::string &text) const {
    return evaluateExpression(text, [this](const std::string &name, bool &isKnown) { return number(name, isKnown); })
        .value.value_or(0);
  }

  /// Returns a width divided by another number, which must divide it.
  std::string quotient(const HfSize &size, const Json &value);

  void requireOnly(const HfForm &form);
  /// Returns whether the config has the supported value of each key that has only one. Chooses among model files of one
  /// model_type.
  bool hasOnly(const HfRules &of) const;

  bool isOf(const HfForm &form, const Json &value) const;

  void reportRest();

  void reportRest(const Json &map, const std::string &prefix, const std::vector<std::string> &names,
                  const std::set<std::string> &maps);

  /// Writes settings that a config does not have: the planner chooses the plan, and the optimizer uses common values.
  void writeRun();

  static constexpr const char *portWay = "docs/port_a_model.md shows how to write a model file for another model";
  const std::string &file, &text;
  size_t textConfig = 0; ///< position of `text_config` in the text
  ImportedHf &result;
  Json config;
  std::optional<Architecture> architecture;
  HfRules rules;
  std::set<std::string> known;
  std::map<std::string, std::string> keysOfSizes; ///< size -> the config's key
  RunFileWriter yaml;
};

bool HfImporter::hasOnly(const HfRules &of) const {
  return std::ranges::all_of(of.only, [&](const HfForm &form) {
    const Json *value = valueAt(config, form.key);
    return value ? isOf(form, *value) : form.missing.empty();
  });
}

void HfImporter::takeTextModel() {
  const Json *inner = valueAt(config, "text_config");
  if (!inner || !inner->is_object())
    return;
  for (const auto &[key, value] : config.items())
    if (key != "text_config" && value.is_object() && key.ends_with("_config") && key != "quantization_config")
      report(key, "of another part than the text model: left out, with its weights", /*isUsed=*/false);
  config = textConfigOf(config);
  textConfig = text.find("\"text_config\"");
}

bool HfImporter::findModel(const std::vector<std::string> &folders) {
  const Json *type = valueAt(config, "model_type");
  std::string wanted = type && type->is_string() ? type->get<std::string>() : "";
  std::vector<std::string> names;
  Diagnostics faults, ownFaults; ///< of files that are not chosen, and of the chosen one
  for (const std::string &modelFile : modelFiles(folders)) {
    Diagnostics own;
    std::optional<Architecture> candidate = loadArchitecture(modelFile, own, folders);
    std::optional<HfRules> found = candidate ? readHfRules(*candidate) : std::nullopt;
    if (!found) {
      faults.add(own);
      continue;
    }
    if (names.empty() || names.back() != found->modelTypes.back())
      names.insert(names.end(), found->modelTypes.begin(), found->modelTypes.end());
    auto folder = [](const std::string &path) { return std::filesystem::path(path).parent_path(); };
    bool isVariant = architecture && folder(modelFile) == folder(architecture->file) && hasOnly(*found);
    if (std::ranges::count(found->modelTypes, wanted) == 0 || (architecture && !isVariant)) {
      faults.add(own);
      continue;
    }
    ownFaults = std::move(own);
    architecture = std::move(candidate);
    rules = std::move(*found);
  }
  result.diagnostics.add(ownFaults);
  result.diagnostics.add(faults, architecture ? Severity::Warning : Severity::Error);
  if (architecture) {
    requireArchitecture();
    return true;
  }
  error("model_type", fmt::format("no model file is for model_type '{}', there are {}{}; {}", wanted,
                                  fmt::join(names, ", "), didYouMean(wanted, names), portWay));
  return false;
}

void HfImporter::writeModel() {
  const std::string section = "model.model_config.";
  bool isChosenByIt = std::ranges::count(architecture->archNames, rules.architecture) > 0;
  yaml.put("model.arch.type", isChosenByIt ? rules.architecture : architecture->name);
  yaml.put(section + "type", architecture->configTypes.front());
  for (const HfSize &size : rules.sizes) {
    std::string key = size.key;
    const Json *value = nullptr;
    bool isMeant = size.isCondition() || applies(size);
    for (const std::string &place : size.places())
      if (const Json *found = valueAt(config, place)) {
        report(place, isMeant ? section + size.sizes.front() : "changes nothing beside the other keys", isMeant);
        bool isFirst = !value || value->is_null();
        if (!isFirst && isMeant && !found->is_null() && *found != *value)
          error(place, fmt::format("{} is {}, and {} is {}, which is the same; keep one of them", place, hfText(*found),
                                   key, hfText(*value)));
        key = isFirst ? place : key;
        value = isFirst ? found : value;
      }
    for (const std::string &each : size.sizes)
      keysOfSizes.emplace(each, key);
    if (!value && size.isRequired)
      error(key, fmt::format("{} is not given; write transformers' value", key));
    if (value && !isMeant) {
      if (conditionOf(size).empty())
        error(key, fmt::format("{} is {}, and {} is not given", key, hfText(*value), conditionKey(size)));
      continue;
    }
    if (!value && size.isNested() &&
        (!isMeant || size.unset.empty() || !size.defaultText.empty())) { // the model's own default is the same
      if (size.defaultText.empty() && isMeant)
        error(key.substr(0, key.find('.')), fmt::format("{} is not given", key));
      continue;
    }
    if (value && isMeant && isUnusable(size, key, *value))
      continue;
    if (!value || value->is_null()) {
      bool isUnset = !size.unset.empty() && (value || size.defaultText.empty());
      Json unset = isUnset ? standIn(size, /*isNull=*/true) : Json();
      std::string text = !isUnset            ? size.defaultText
                         : unset.is_number() ? fmt::format("{}", unset.get<double>())
                                             : scalar(unset);
      for (const std::string &each : size.sizes)
        if (!text.empty() && !hasDefault(size, each, text))
          yaml.put(section + each, text, isUnset ? size.unset : "transformers' default");
      continue;
    }
    requireChoice(size, key, scalar(*value));
    for (const std::string &each : size.sizes)
      yaml.put(section + each, size.times.empty() ? scalar(*value) : quotient(size, *value), key);
  }
  for (const auto &[size, text] : rules.implied)
    yaml.put(section + size, fmt::format("{}", valueOf(text)), "as transformers does it: " + text);
  std::string dtype = dtypeOf(config);
  for (const char *key : {"dtype", "torch_dtype"})
    if (valueAt(config, key))
      report(key, section + "param_init_type and compute_dtype", /*isUsed=*/true);
  yaml.put(section + "param_init_type", dtype, "torch_dtype");
  yaml.put(section + "compute_dtype", dtype, "torch_dtype");
}

bool HfImporter::isUnusable(const HfSize &size, const std::string &key, const Json &value) {
  if (value.is_null() && (!size.unset.empty() || size.isNested()))
    return false;
  const SizeRule *rule = architecture->sizeRule(size.sizes.front());
  bool isList = rule && rule->type == SizeRule::Type::List;
  if (isList && (value.is_array() || value.is_null()))
    return false;
  bool isText = rule && rule->type == SizeRule::Type::String, isFlag = rule && rule->type == SizeRule::Type::Bool;
  bool isInfinite = value.is_number_float() && !std::isfinite(value.get<double>());
  bool isSimple = (value.is_number() && !isInfinite) || value.is_string() || value.is_boolean();
  if (isSimple && !isList && (isText || !value.is_string()))
    return false;
  std::string way = size.defaultText.empty() ? "transformers' default" : "transformers' default, " + size.defaultText;
  error(key, fmt::format("{} is {}, wanted {}; without the key it is {}", key, hfText(value).substr(0, 200),
                         isInfinite ? "a finite number"
                         : isList   ? "a list"
                         : isText   ? "a name"
                         : isFlag   ? "true or false"
                                    : "a number",
                         way));
  return true;
}

void HfImporter::checkSizes() {
  std::set<std::string> reported;
  for (const SizeFault &fault : sizeFaults(*architecture, result.yaml)) {
    auto found = keysOfSizes.find(fault.size);
    if (found == keysOfSizes.end()) {
      result.diagnostics.error(fault.where.file.empty() ? SourceLocation{file, 0, 0} : fault.where, fault.message);
      continue;
    }
    const std::string &key = found->second;
    if (!reported.insert(key).second)
      continue;
    std::string prefix = !valueAt(config, key) ? key + " is not given: " : key != fault.size ? key + ": " : "";
    error(key, prefix + fault.message);
  }
}

std::string HfImporter::conditionKey(const HfSize &size) const {
  for (const HfSize &other : rules.sizes)
    if (other.sizes.front() == size.ifSize)
      return other.key;
  return "";
}

std::string HfImporter::conditionOf(const HfSize &size) const {
  for (const HfSize &other : rules.sizes)
    for (const std::string &place : other.places())
      if (const Json *value = valueAt(config, place); value && other.sizes.front() == size.ifSize)
        return scalar(*value);
  return "";
}

bool HfImporter::applies(const HfSize &size) const {
  const SizeRule *rule = architecture->sizeRule(size.ifSize);
  if (!rule)
    return true;
  auto choice = rule->choices.find(conditionOf(size));
  return choice != rule->choices.end() && std::ranges::count(size.ifValues, choice->second) > 0;
}

void HfImporter::requireChoice(const HfSize &size, const std::string &key, const std::string &value) {
  const SizeRule *rule = architecture->sizeRule(size.sizes.front());
  if (auto refused = size.refused.find(value); refused != size.refused.end())
    return error(key, fmt::format("{} is {}: {}", key, value, refused->second));
  if (!rule || rule->type != SizeRule::Type::String || rule->choices.contains(value))
    return;
  std::vector<std::string> names;
  for (const auto &[name, meaning] : rule->choices)
    names.push_back(name);
  error(key, fmt::format("{} is {}, {} has {}{}", key, value, architecture->name, fmt::join(names, ", "),
                         didYouMean(value, names)));
}

std::string HfImporter::quotient(const HfSize &size, const Json &value) {
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

void HfImporter::requireOnly(const HfForm &form) {
  const std::string &key = form.key;
  const Json *value = valueAt(config, key);
  if (!value && !form.missing.empty())
    return error(key,
                 fmt::format("{} is not given, which means {}: {}", key, form.missing, form.text(architecture->name)));
  if (!value)
    return;
  report(key, form.text(architecture->name), /*isUsed=*/false);
  bool isKnown = false;
  std::optional<double> layers = number("num_hidden_layers", isKnown);
  if (bool isOfLayers = !form.each.empty() || !form.cycle.empty();
      isOfLayers && value->is_array() && layers && static_cast<double>(value->size()) != *layers)
    error(key, fmt::format("{} has {} items, wanted one for each of {} layers (num_hidden_layers)", key, value->size(),
                           *layers));
  else if (!isOf(form, *value))
    error(key, fmt::format("{} is {}, {}", key, hfText(*value).substr(0, 200), form.text(architecture->name)));
}

bool HfImporter::isOf(const HfForm &form, const Json &value) const {
  if (value.is_null())
    return true;
  if (value.is_number() && !form.least.empty() && value.get<double>() >= valueOf(form.least))
    return true;
  if (!form.of.empty())
    return expandedPairs(value) == config.value(form.of, Json());
  if (!form.cycle.empty())
    return value.is_array() && std::ranges::all_of(value, [&, i = size_t{0}](const Json &item) mutable {
             return scalar(item) == form.cycle[i++ % form.cycle.size()];
           });
  if (!form.each.empty())
    return value.is_array() && std::ranges::all_of(value, [&](const Json &item) {
             return item == form.each || (item.is_number() && item == valueOf(form.each));
           });
  const YamlNode &wanted = *form.wanted;
  auto isItem = [&](const YamlPtr &item, const Json &own) { return isOf({.key = form.key, .wanted = item}, own); };
  if (wanted.isSequence() && !value.is_array())
    return std::ranges::any_of(wanted.items, [&](const YamlPtr &item) { return isItem(item, value); });
  if (value.is_boolean())
    return yamlBool(wanted) == value.get<bool>();
  if (value.is_string() || wanted.text == scalar(value))
    return wanted.text == scalar(value);
  if (value.is_array())
    return wanted.isSequence() && std::ranges::equal(wanted.items, value, isItem);
  return value.is_number() && wanted.isScalar() && !yamlBool(wanted) && valueOf(wanted.text) == value.get<double>();
}

void HfImporter::reportRest() {
  std::vector<std::string> names;
  std::set<std::string> maps; ///< keys whose values are maps with keys of rules
  for (const HfSize &size : rules.sizes)
    for (const std::string &place : size.places()) {
      names.push_back(place);
      if (size_t dot = place.rfind('.'); dot != std::string::npos)
        maps.insert(place.substr(0, dot));
    }
  reportRest(config, "", names, maps);
}

void HfImporter::reportRest(const Json &map, const std::string &prefix, const std::vector<std::string> &names,
                            const std::set<std::string> &maps) {
  for (const auto &[name, value] : map.items()) {
    std::string key = prefix + name;
    if (maps.contains(key) && value.is_object()) {
      reportRest(value, key + ".", names, maps);
      continue;
    }
    if (known.contains(key) || (maps.contains(key) && value.is_null()))
      continue;
    if (isInertHfKey(key) || rules.ignored.contains(key))
      report(key, "changes neither the weights nor what is trained", /*isUsed=*/false);
    else if (key != "quantization_config")
      error(key, fmt::format("{} is not known for {}{}; remove it where it changes nothing, else {}", key,
                             rules.modelTypes.front(), didYouMean(key, names), portWay));
  }
}

void HfImporter::writeRun() {
  bool isHalf = dtypeOf(config) != "float32";
  yaml.put("runner_config.batch_size", "1");
  yaml.put("parallel.parallel_mode", "2");
  yaml.put("optimizer.type", "AdamW");
  if (isHalf)
    yaml.put("optimizer.master_weights", "True");
  yaml.put("lr_schedule.type", "constant");
  yaml.put("lr_schedule.learning_rate", "1e-5");
}

} // namespace

ImportedHf importHfConfig(const std::string &file, const std::string &text,
                          const std::vector<std::string> &searchPath) {
  ImportedHf result;
  HfImporter(file, text, result).run(configFolders(file, searchPath));
  return result;
}

std::string agreeingHfConfig(const HfModel &model, const std::string &dtype, const std::string &file,
                             const std::string &text, Diagnostics &diagnostics) {
  std::optional<HfRules> rules = rulesOf(model, diagnostics);
  Json config;
  if (std::string fault = readHfConfig(text, config); !rules || !fault.empty()) {
    diagnostics.error({file, 0, 0}, "is no config.json of this model");
    return "";
  }
  bool isTextModel = valueAt(config, "text_config") != nullptr;
  if (isTextModel) {
    config = textConfigOf(config);
    config["architectures"] = {rules->architecture};
  }
  Json wanted = expectedValues(model, *rules);
  ImportedHf forms;
  HfImporter importer(file, text, forms);
  importer.runOnly(*model.architecture, *rules, config);
  for (const auto &[key, expected] : wanted.items()) {
    auto size = std::ranges::find(rules->sizes, key, &HfSize::key);
    if (!size->isCondition() && std::ranges::count(size->ifValues, model.sizes.at(size->ifSize).text) == 0)
      continue; // the key has no meaning
    const Json *value = nullptr;
    for (const std::string &place : size->places())
      value = value ? value : valueAt(config, place);
    Json standIn = importer.standIn(*size, value != nullptr);
    if (!value || value->is_null())
      value = &standIn;
    bool agrees = value->is_null() || *value == expected;
    if (expected.is_string() && value->is_string()) { // an activation may have several names
      const SizeRule *rule = model.architecture->sizeRule(size->sizes.front());
      auto choice = rule->choices.find(value->get<std::string>());
      agrees = choice != rule->choices.end() && choice->second == model.sizes.at(rule->name).text;
    }
    if (!agrees)
      diagnostics.error({file, 0, 0}, fmt::format("{} is {}, the model has {}", key, hfText(*value), hfText(expected)));
  }
  for (const Diagnostic &fault : forms.diagnostics.sorted())
    diagnostics.error(fault.where, fault.message);
  if (dtypeOf(config) == dtype && !isTextModel)
    return text;
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
  return hfText(config, 2) + "\n";
}

} // namespace espalier
