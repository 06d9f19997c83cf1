#include "compiler/import/huggingface/pretrained_model.h"

#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/yaml/base_config.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr size_t mostBytes = 1 << 20;

YamlPtr mapOf(const std::string &key, const YamlPtr &value, const SourceLocation &where) {
  auto map = std::make_shared<YamlNode>();
  map->kind = YamlNode::Kind::Map;
  map->where = where;
  map->entries.push_back({key, where, value});
  return map;
}

/// Sets the sequence length from the data settings, because the model's value is only its maximum.
YamlPtr withSampleLength(const YamlPtr &model, const YamlNode &root) {
  const YamlNode *node = &root;
  for (const char *key : {"train_dataset", "data_loader", "config", "seq_length"})
    node = node && node->isMap() ? node->find(key) : nullptr;
  if (!node || !yamlInteger(*node))
    return model;
  YamlPtr changed = withValue(model, "model.model_config.seq_length", std::make_shared<YamlNode>(*node));
  return changed ? changed : model;
}

} // namespace

YamlPtr mergePretrainedModel(const YamlPtr &root, const std::string &file, const std::vector<std::string> &searchPath,
                             Diagnostics &diagnostics) {
  const YamlNode *named = root->find("pretrained_model_dir");
  if (!named || !named->isScalar() || named->text.empty())
    return root;
  std::error_code ignored;
  fs::path config = fs::path(named->text) / "config.json";
  if (config.is_relative() && !fs::is_regular_file(config, ignored))
    config = fs::path(file).parent_path() / config;
  if (!fs::is_regular_file(config, ignored) || fs::file_size(config, ignored) > mostBytes) {
    diagnostics.error(named->where,
                      fmt::format("pretrained_model_dir '{}' has no config.json here, which says the "
                                  "model's sizes; name a folder that has, or write them into model_config "
                                  "and remove the key",
                                  named->text));
    return root;
  }
  std::ifstream in(config, std::ios::binary);
  std::string name = config.lexically_normal().string();
  ImportedHf hf = importHfConfig(name, {std::istreambuf_iterator<char>(in), {}}, searchPath);
  diagnostics.add(hf.diagnostics);
  YamlPtr imported = hf.diagnostics.hasErrors() ? nullptr : parseYaml(name, hf.yaml, diagnostics);
  if (!imported)
    return root;
  for (const YamlEntry &entry : imported->entries)
    if (entry.key == "model")
      return mergedOver(withSampleLength(mapOf("model", entry.value, named->where), *root), root);
  return root;
}

} // namespace espalier
