// Parts become plain segments before anything else reads the file.
#include "compiler/import/model/model_parts.h"

#include "compiler/import/yaml/base_config.h"

#include <fmt/format.h>

namespace espalier {
namespace {

/// A node of a kind at the location of another one.
std::shared_ptr<YamlNode> emptyNode(YamlNode::Kind kind, const YamlNode &like) {
  auto node = std::make_shared<YamlNode>();
  node->kind = kind;
  node->where = like.where;
  return node;
}

class PartExpander {
public:
  PartExpander(const YamlNode &root, Diagnostics &diagnostics) : parts(root.find("parts")), diagnostics(diagnostics) {}

  YamlPtr expanded(const YamlPtr &segment) {
    const YamlNode *used = segment->find("parts");
    if (!used)
      return segment;
    auto result = emptyNode(YamlNode::Kind::Map, *segment);
    YamlPtr parameters = emptyNode(YamlNode::Kind::Map, *segment);
    auto ops = emptyNode(YamlNode::Kind::Sequence, *segment);
    auto take = [&](const YamlNode &from) {
      for (const YamlEntry &entry : from.entries)
        if (entry.key == "parameters" && entry.value->isMap())
          parameters = mergedOver(parameters, entry.value);
        else if (entry.key == "ops")
          ops->items.insert(ops->items.end(), entry.value->items.begin(), entry.value->items.end());
        else if (&from != segment.get())
          diagnostics.error(entry.keyWhere, fmt::format("unknown key '{}' in a part{}", entry.key,
                                                        didYouMean(entry.key, {"parameters", "ops"})));
        else if (entry.key != "parts")
          result->entries.push_back(entry);
    };
    for (const std::string &name : yamlTexts(used))
      if (const YamlNode *part = parts ? parts->find(name) : nullptr)
        take(*part);
      else
        diagnostics.error(used->where, fmt::format("no part '{}'{}", name, didYouMean(name, names())));
    take(*segment);
    result->entries.push_back({"parameters", used->where, parameters});
    result->entries.push_back({"ops", used->where, ops});
    return result;
  }

private:
  std::vector<std::string> names() const {
    std::vector<std::string> known;
    for (size_t i = 0; parts && i < parts->entries.size(); ++i)
      known.push_back(parts->entries[i].key);
    return known;
  }

  const YamlNode *parts;
  Diagnostics &diagnostics;
};

} // namespace

YamlPtr withParts(const YamlPtr &root, Diagnostics &diagnostics) {
  PartExpander expander(*root, diagnostics);
  auto result = std::make_shared<YamlNode>(*root);
  for (YamlEntry &section : result->entries) {
    if (section.key != "segments")
      continue;
    auto segments = std::make_shared<YamlNode>(*section.value);
    std::erase_if(segments->entries,
                  [](const YamlEntry &segment) { return segment.value->kind == YamlNode::Kind::Null; });
    for (YamlEntry &segment : segments->entries)
      segment.value = expander.expanded(segment.value);
    section.value = segments;
  }
  return result;
}

} // namespace espalier
