#include "compiler/import/huggingface/hf_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {

namespace {

std::string textOf(const YamlNode &map, const char *key) {
  const YamlNode *node = map.find(key);
  return node && node->isScalar() ? node->text : "";
}

HfSize readSize(const YamlEntry &entry) {
  HfSize size;
  size.key = entry.key;
  size.sizes = yamlTexts(entry.value->find("is"));
  size.defaultText = textOf(*entry.value, "default");
  size.times = textOf(*entry.value, "times");
  size.dim = textOf(*entry.value, "dim");
  size.unset = textOf(*entry.value, "unset");
  size.isRequired = textOf(*entry.value, "required") == "true";
  size.also = yamlTexts(entry.value->find("also"));
  for (auto [part, map] : {std::pair("spelled", &size.spelled), {"refused", &size.refused}})
    if (const YamlNode *texts = entry.value->find(part))
      for (const YamlEntry &text : texts->entries)
        (*map)[text.key] = text.value->text;
  if (const YamlNode *condition = entry.value->find("if"); condition && !condition->entries.empty()) {
    size.ifSize = condition->entries.front().key;
    size.ifValues = yamlTexts(condition->entries.front().value.get());
  }
  return size;
}

HfForm readForm(const YamlEntry &entry) {
  if (!entry.value->isMap())
    return {.key = entry.key, .wanted = entry.value};
  auto text = [&](const char *key) { return textOf(*entry.value, key); };
  HfForm form = {.key = entry.key,
                 .wanted = nullptr,
                 .missing = text("missing"),
                 .least = text("least"),
                 .each = text("each"),
                 .of = text("of")};
  for (const std::string &item : yamlTexts(entry.value->find("cycle"))) {
    size_t at = item.find(" x "); // "full x 5"
    int times = at == std::string::npos ? 1 : std::atoi(item.c_str() + at + 3);
    form.cycle.insert(form.cycle.end(), times, item.substr(0, at));
  }
  for (const YamlEntry &part : entry.value->entries)
    if (part.key == "is")
      form.wanted = part.value;
  return form;
}

} // namespace

std::string HfForm::text(const std::string &model) const {
  if (!cycle.empty())
    return fmt::format("{} has only lists that repeat {}", model, fmt::join(cycle, ", "));
  if (!of.empty())
    return fmt::format("{} has the layers of {}", model, of);
  if (!wanted)
    return fmt::format("{} has only lists of {}", model, each);
  std::string value = wanted->kind == YamlNode::Kind::Null ? "null" : flowText(*wanted);
  return fmt::format("{} has only {}{}", model, value, least.empty() ? "" : " or at least " + least);
}

std::optional<HfRules> readHfRules(const Architecture &architecture) {
  const YamlNode *root = architecture.root->find("hf_config");
  if (!root || !root->isMap())
    return std::nullopt;
  HfRules rules;
  rules.modelTypes = yamlTexts(root->find("model_type"));
  if (rules.modelTypes.empty())
    return std::nullopt;
  rules.architecture = textOf(*root, "architecture");
  if (const YamlNode *sizes = root->find("sizes"))
    for (const YamlEntry &entry : sizes->entries)
      if (entry.value->isMap()) // null takes a key of the base file away
        rules.sizes.push_back(readSize(entry));
  if (const YamlNode *only = root->find("only"))
    for (const YamlEntry &entry : only->entries)
      rules.only.push_back(readForm(entry));
  if (const YamlNode *implied = root->find("implied"))
    for (const YamlEntry &entry : implied->entries)
      rules.implied.emplace_back(entry.key, entry.value->text);
  if (const YamlNode *unsaid = root->find("unsaid"))
    for (const YamlEntry &entry : unsaid->entries)
      if (std::optional<double> value = yamlNumber(*entry.value)) // null takes an entry of the base file away
        rules.unsaid[entry.key] = *value;
  rules.cleared = yamlTexts(root->find("cleared"));
  std::vector<std::string> ignored = yamlTexts(root->find("ignored"));
  rules.ignored.insert(ignored.begin(), ignored.end());
  return rules;
}

} // namespace espalier
