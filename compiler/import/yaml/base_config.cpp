// Every node keeps the location it was read from, so an error in a base file names that file.
#include "compiler/import/yaml/base_config.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr int mostLevels = 8;
constexpr size_t mostBases = 16;
/// The most files that one file reads as bases, with the bases of these; a base that several files name counts each
/// time.
constexpr size_t mostReads = 256;

/// Sets `key` of a map and replaces an earlier entry.
void setEntry(YamlNode &map, const YamlEntry &entry) {
  for (YamlEntry &existing : map.entries)
    if (existing.key == entry.key) {
      existing = entry;
      return;
    }
  map.entries.push_back(entry);
}

/// Returns whether a null below `key` has a meaning of its own in a model file: the supported value of `only:`, and a
/// parameter that the ops of a part do without.
bool keepsNull(const std::string &key, const std::string &parent) { return key == "is" || parent == "parameters"; }

/// Merges as mergedOver does. With `Keys`, a null removes the entry of the base. `parent` is the key of the maps. The
/// parser limits the depth.
YamlPtr mergedMaps(const YamlPtr &base, const YamlPtr &over, BaseMerge merge, const std::string &parent = "") {
  if (!base || !base->isMap() || !over->isMap())
    return over;
  auto result = std::make_shared<YamlNode>(*base);
  for (const YamlEntry &entry : over->entries) {
    YamlPtr below;
    for (const YamlEntry &candidate : base->entries)
      if (candidate.key == entry.key)
        below = candidate.value;
    bool isRemoved = below && merge == BaseMerge::Keys && entry.value->kind == YamlNode::Kind::Null;
    if (isRemoved && !keepsNull(entry.key, parent))
      std::erase_if(result->entries, [&](const YamlEntry &removed) { return removed.key == entry.key; });
    else
      setEntry(*result, {entry.key, entry.keyWhere, mergedMaps(below, entry.value, merge, entry.key)});
  }
  return result;
}

/// Reads the bases of files and merges them.
class BaseMerger {
public:
  BaseMerger(const std::vector<std::string> &folders, BaseMerge merge, Diagnostics &diagnostics)
      : folders(folders), merge(merge), diagnostics(diagnostics) {}

  YamlPtr merged(const YamlPtr &root, const std::string &file, int level) const {
    const YamlNode *bases = root->find("base_config");
    if (!bases || bases->kind == YamlNode::Kind::Null)
      return root;
    std::vector<YamlPtr> names = bases->items;
    if (!bases->isSequence())
      names = {std::make_shared<YamlNode>(*bases)};
    if (level >= mostLevels || names.size() > mostBases) {
      diagnostics.error(bases->where,
                        fmt::format("base_config takes at most {} files, {} levels deep", mostBases, mostLevels));
      return root;
    }
    YamlPtr below;
    for (const YamlPtr &name : names)
      if (YamlPtr base = read(*name, file, level))
        below = below ? over(below, base) : base;
    return mergedMaps(below, root, merge);
  }

private:
  YamlPtr over(const YamlPtr &earlier, const YamlPtr &base) const {
    if (merge == BaseMerge::Keys)
      return mergedMaps(earlier, base, merge);
    auto result = std::make_shared<YamlNode>(*earlier);
    for (const YamlEntry &entry : base->entries)
      setEntry(*result, entry);
    return result;
  }

  /// Returns a base of `file` with its own bases, or null after an error.
  YamlPtr read(const YamlNode &name, const std::string &file, int level) const {
    if (!name.isScalar()) {
      diagnostics.error(name.where, fmt::format("base_config takes names of files, got {}", flowText(name)));
      return nullptr;
    }
    std::vector<fs::path> places = {fs::path(file).parent_path() / name.text};
    for (const std::string &folder : folders)
      places.push_back(fs::path(folder) / name.text);
    std::error_code ignored;
    for (const fs::path &place : places) {
      bool isItself = !folders.empty() && fs::equivalent(place, file, ignored); // it may refine its namesake
      if (isItself || !fs::exists(place, ignored))
        continue;
      std::string path = place.lexically_normal().string();
      if (++reads > mostReads) {
        if (reads == mostReads + 1)
          diagnostics.error(name.where,
                            fmt::format("base_config takes at most {} files with the bases of its bases", mostReads));
        return nullptr;
      }
      YamlPtr base = loadYaml(path, diagnostics);
      if (base && !base->isMap())
        diagnostics.error(base->where, fmt::format("a base is a map of sections, got {}", flowText(*base)));
      return base && base->isMap() ? merged(base, path, level + 1) : nullptr;
    }
    std::vector<std::string> missing;
    for (const fs::path &place : places)
      if (std::string path = place.lexically_normal().string(); std::ranges::count(missing, path) == 0)
        missing.push_back(path);
    diagnostics.error(name.where, fmt::format("base_config has no file '{}'", fmt::join(missing, "' or '")));
    return nullptr;
  }

  const std::vector<std::string> &folders;
  BaseMerge merge;
  Diagnostics &diagnostics;
  mutable size_t reads = 0;
};

} // namespace

YamlPtr mergedOver(const YamlPtr &base, const YamlPtr &over) { return mergedMaps(base, over, BaseMerge::Sections); }

YamlPtr mergeBaseConfigs(const YamlPtr &root, const std::string &file, Diagnostics &diagnostics, BaseMerge merge,
                         const std::vector<std::string> &folders) {
  return BaseMerger(folders, merge, diagnostics).merged(root, file, 0);
}

} // namespace espalier
