// Writes a config.json.
#include "compiler/import/huggingface/hf_values.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {

Json expectedValues(const HfModel &model, const HfRules &rules) {
  Json values = Json::object();
  for (const HfSize &size : rules.sizes) {
    auto found = model.sizes.find(size.sizes.front());
    if (found == model.sizes.end())
      continue;
    const SizeRule *rule = model.architecture->sizeRule(size.sizes.front());
    const SizeValue &value = found->second;
    std::optional<double> number = value.number;
    if (!size.dim.empty())
      number = static_cast<double>(model.description.dims.at(size.dim));
    if (!size.times.empty() && number && values.contains(size.times))
      number = *number * values[size.times].get<double>();
    if (rule && rule->type == SizeRule::Type::String) {
      auto name = size.spelled.find(value.text);
      values[size.key] = name == size.spelled.end() ? value.text : name->second;
    } else if (rule && rule->type == SizeRule::Type::List) {
      values[size.key] = listOf(value.items);
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

std::optional<HfRules> rulesOf(const HfModel &model, Diagnostics &diagnostics) {
  std::optional<HfRules> rules = model.architecture ? readHfRules(*model.architecture) : std::nullopt;
  if (!rules && model.architecture)
    diagnostics.error({model.architecture->file, 0, 0}, "has no `hf_config:`, by which a config.json is written");
  return rules;
}

std::string hfConfigText(const HfModel &model, const std::string &dtype, Diagnostics &diagnostics) {
  std::optional<HfRules> rules = rulesOf(model, diagnostics);
  if (!rules)
    return "";
  for (const auto &[name, wanted] : rules->unsaid)
    if (double found = model.sizes.at(name).number.value_or(wanted); found != wanted)
      diagnostics.error(model.sizes.at(name).where,
                        fmt::format("{} is {:.10g}, the config.json of {} can only mean {:.10g}", name, found,
                                    rules->modelTypes.front(), wanted));
  Json config = Json::object();
  Json values = expectedValues(model, *rules);
  for (const HfSize &size : rules->sizes) {
    if (!values.contains(size.key) ||
        (!size.ifSize.empty() && std::ranges::count(size.ifValues, model.sizes.at(size.ifSize).text) == 0))
      continue;
    const Json &found = values[size.key];
    if (found.is_array() && found.empty())
      continue; // transformers' own layers
    bool isUnset = found.is_number() && size.unsetNumber() == found.get<double>();
    if (!isUnset || !size.isNested())
      config[pointerTo(size.key)] = isUnset ? Json() : found;
  }
  config["architectures"] = {rules->architecture};
  config["model_type"] = rules->modelTypes.front();
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

} // namespace espalier
