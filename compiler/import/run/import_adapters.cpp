// Reads model.model_config.pet_config, the section of MindFormers for parameter-efficient training.
#include "compiler/import/run/run_reader.h"

#include "messages/data_error.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {
namespace {

const std::string section = "model.model_config.pet_config";
constexpr size_t mostTargetBytes = 1000;

std::string lowerCase(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Returns the regular expression. Reports an error and returns null if the text is none.
std::shared_ptr<const rt::Regex> readExpression(const RunReader &reader, const std::string &path,
                                                const std::string &text) {
  if (text.size() > mostTargetBytes) {
    reader.error(path, fmt::format("is {} bytes long, at most {} are read", text.size(), mostTargetBytes));
    return nullptr;
  }
  try {
    return std::make_shared<const rt::Regex>(path, text);
  } catch (const rt::DataError &error) {
    reader.error(
        path, fmt::format("'{}' is no regular expression ({}); write for example '.*wq|.*wv'", text, error.reason()));
    return nullptr;
  }
}

/// Reads the targets. Returns whether they are sound.
bool readTargets(const RunReader &reader, AdapterConfig &config) {
  std::string path = section + ".target_modules";
  const YamlNode *node = reader.find(path);
  if (!node) {
    reader.error(section, "has no target_modules, which selects the products with an adapter; write for example "
                          "target_modules: '.*wq|.*wv'");
    return false;
  }
  config.where = node->where;
  config.targets = yamlTexts(node);
  if (config.targets.empty() || std::ranges::count(config.targets, "") > 0) {
    reader.error(
        path, fmt::format("target_modules must be a regular expression or a list of names, got {}", flowText(*node)));
    return false;
  }
  if (!node->isScalar())
    return true;
  config.pattern = readExpression(reader, path, config.targets.front());
  return config.pattern != nullptr;
}

} // namespace

void importAdapters(const RunReader &reader, const NamedParameters &modules) {
  if (!reader.find(section))
    return;
  std::string type = lowerCase(reader.text(section + ".pet_type").value_or(""));
  if (type != "lora") {
    std::string path = reader.has(section + ".pet_type") ? section + ".pet_type" : section;
    return reader.refuse(path, fmt::format("pet_type '{}' is not built, only lora is; remove pet_config to train all "
                                           "parameters",
                                           type));
  }
  AdapterConfig config;
  config.rank = reader.integer(section + ".lora_rank").value_or(config.rank);
  config.alpha = reader.number(section + ".lora_alpha").value_or(config.alpha);
  config.dropout = reader.number(section + ".lora_dropout").value_or(config.dropout);
  if (config.alpha <= 0)
    reader.error(section + ".lora_alpha", fmt::format("lora_alpha must be above 0, got {}", config.alpha));
  if (config.dropout < 0 || config.dropout >= 1)
    reader.error(section + ".lora_dropout",
                 fmt::format("lora_dropout must be at least 0 and below 1, got {}", config.dropout));
  if (!readTargets(reader, config) || reader.diagnostics().hasErrors())
    return;
  RunConfig &run = reader.config();
  auto hf = std::ranges::find(run.weights, "hf", &WeightRules::system);
  NamedParameters weights = hf == run.weights.end() ? NamedParameters() : hf->rules;
  try {
    NamedParameters names = addAdapters(config, weights, modules, run.model, reader.diagnostics());
    if (!names.empty())
      run.weights.push_back({"peft", std::move(names)});
  } catch (const rt::DataError &error) { // the step limit of the expression
    return reader.error(section + ".target_modules", error.reason());
  }
  run.adapters = std::move(config);
}

} // namespace espalier
