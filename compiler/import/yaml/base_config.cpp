// Every node keeps the location it was read from, so an error in a base file names that file.
#include "compiler/import/yaml/base_config.h"

#include <filesystem>
#include <fmt/format.h>

namespace espalier {
namespace {

constexpr int mostLevels = 4;
constexpr size_t mostBases = 16;

/// Sets `key` of a map and replaces an earlier entry.
void setEntry(YamlNode &map, const YamlEntry &entry) {
  for (YamlEntry &existing : map.entries)
    if (existing.key == entry.key) {
      existing = entry;
      return;
    }
  map.entries.push_back(entry);
}

YamlPtr mergeAtLevel(const YamlPtr &root, const std::string &file, int level, Diagnostics &diagnostics) {
  const YamlNode *bases = root->find("base_config");
  if (!bases)
    return root;
  std::vector<YamlPtr> names = bases->items;
  if (bases->isScalar())
    names = {std::make_shared<YamlNode>(*bases)};
  if (level >= mostLevels || names.size() > mostBases) {
    diagnostics.error(bases->where,
                      fmt::format("base_config takes at most {} files, {} levels deep", mostBases, mostLevels));
    return root;
  }
  auto below = std::make_shared<YamlNode>();
  below->kind = YamlNode::Kind::Map;
  for (const YamlPtr &name : names) {
    std::string path = (std::filesystem::path(file).parent_path() / name->text).lexically_normal().string();
    std::error_code ignored;
    if (!name->isScalar() || !std::filesystem::is_regular_file(path, ignored)) {
      diagnostics.error(name->where, fmt::format("base_config has no file '{}'", path));
      continue;
    }
    YamlPtr base = loadYaml(path, diagnostics);
    if (base && base->isMap())
      base = mergeAtLevel(base, path, level + 1, diagnostics);
    for (size_t i = 0; base && i < base->entries.size(); ++i)
      setEntry(*below, base->entries[i]);
  }
  return mergedOver(below, root);
}

} // namespace

// The parser limits the depth.
YamlPtr mergedOver(const YamlPtr &base, const YamlPtr &over) {
  if (!base || !base->isMap() || !over->isMap())
    return over;
  auto result = std::make_shared<YamlNode>(*base);
  for (const YamlEntry &entry : over->entries) {
    const YamlEntry *below = nullptr;
    for (const YamlEntry &candidate : base->entries)
      if (candidate.key == entry.key)
        below = &candidate;
    setEntry(*result, {entry.key, entry.keyWhere, below ? mergedOver(below->value, entry.value) : entry.value});
  }
  return result;
}

YamlPtr mergeBaseConfigs(const YamlPtr &root, const std::string &file, Diagnostics &diagnostics) {
  return mergeAtLevel(root, file, 0, diagnostics);
}

} // namespace espalier
