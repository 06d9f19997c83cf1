// Builds the tree from yaml-cpp's events. Limits are enforced while events arrive: a node's expanded size is the sum of
// its children's sizes. Nested aliases are therefore rejected without expanding them.
#include "compiler/import/yaml/yaml.h"

#include "compiler/import/yaml/yaml_fault.h"
#include "format/path_kind.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace espalier {

const YamlNode *YamlNode::find(std::string_view key) const {
  for (const YamlEntry &entry : entries)
    if (entry.key == key)
      return entry.value.get();
  return nullptr;
}

namespace {

/// Ends the parse at a limit. Thrown through yaml-cpp and caught in parseYaml; never leaves this file.
struct LimitReached {};

class TreeBuilder : public YAML::EventHandler {
public:
  TreeBuilder(const std::string &file, Diagnostics &diagnostics, const YamlLimits &limits)
      : file(file), diagnostics(diagnostics), limits(limits) {}

  YamlPtr root;
  SourceLocation lastQuoted; ///< of the last scalar in quotes; no location if there is none

  void OnDocumentStart(const YAML::Mark &) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark &mark, YAML::anchor_t anchor) override {
    auto node = makeNode(YamlNode::Kind::Null, mark);
    finish(node, anchor);
  }
  void OnScalar(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                const std::string &value) override {
    auto node = makeNode(YamlNode::Kind::Scalar, mark);
    node->text = value;
    node->quoted = tag == "!";
    if (node->quoted)
      lastQuoted = node->where;
    checkTag(tag, node->where);
    if (!node->quoted && (value == "~" || value == "null" || value == "Null" || value == "NULL"))
      node->kind = YamlNode::Kind::Null;
    finish(node, anchor);
  }
  void OnAlias(const YAML::Mark &mark, YAML::anchor_t anchor) override {
    auto target = anchors.find(anchor);
    if (target == anchors.end())
      stop(place(mark), "an alias inside the node that it refers to would never end");
    add(target->second, place(mark));
  }
  void OnSequenceStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::Sequence, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::Map, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

private:
  /// A collection whose end event has not arrived.
  struct Open {
    std::shared_ptr<YamlNode> node;
    YAML::anchor_t anchor;
    bool hasKey = false, skipValue = false;
    std::string key;
    SourceLocation keyWhere;
  };

  SourceLocation place(const YAML::Mark &mark) const { return {file, mark.line + 1, mark.column + 1}; }
  std::shared_ptr<YamlNode> makeNode(YamlNode::Kind kind, const YAML::Mark &mark) {
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->where = place(mark);
    return node;
  }
  [[noreturn]] void stop(const SourceLocation &where, std::string message) {
    diagnostics.error(where, std::move(message));
    throw LimitReached{};
  }
  void checkTag(const std::string &tag, const SourceLocation &where) {
    if (!tag.empty() && tag != "?" && tag != "!" && !tag.starts_with("tag:yaml.org,2002:"))
      diagnostics.error(where, fmt::format("tag '{}' has no meaning here, remove it", tag));
  }
  void open(YamlNode::Kind kind, const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor) {
    auto node = makeNode(kind, mark);
    checkTag(tag, node->where);
    if (static_cast<int>(stack.size()) >= limits.depth)
      stop(node->where, fmt::format("nesting is deeper than {} levels", limits.depth));
    stack.push_back({node, anchor, false, false, {}, {}});
  }
  void close() {
    Open done = stack.back();
    stack.pop_back();
    if (done.node->isMap())
      mergeInto(*done.node);
    finish(done.node, done.anchor);
  }
  void finish(const std::shared_ptr<YamlNode> &node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor)
      anchors[anchor] = node;
    add(node, node->where);
  }
  void add(const YamlPtr &node, const SourceLocation &where);
  void addToMap(Open &map, const YamlPtr &node, const SourceLocation &where);
  void mergeInto(YamlNode &map);

  std::string file;
  Diagnostics &diagnostics;
  YamlLimits limits;
  std::vector<Open> stack;
  std::map<YAML::anchor_t, YamlPtr> anchors; ///< finished nodes only
};

void TreeBuilder::add(const YamlPtr &node, const SourceLocation &where) {
  if (stack.empty()) {
    root = node;
    return;
  }
  Open &parent = stack.back();
  parent.node->expandedNodes += node->expandedNodes;
  parent.node->depth = std::max(parent.node->depth, node->depth + 1);
  if (parent.node->expandedNodes > limits.expandedNodes)
    stop(where, fmt::format("more than {} nodes after the expansion of aliases", limits.expandedNodes));
  if (static_cast<int>(stack.size()) + node->depth > limits.depth)
    stop(where, fmt::format("nesting is deeper than {} levels", limits.depth));
  if (parent.node->isSequence())
    parent.node->items.push_back(node);
  else
    addToMap(parent, node, where);
}

void TreeBuilder::addToMap(Open &map, const YamlPtr &node, const SourceLocation &where) {
  if (map.hasKey) {
    map.hasKey = false;
    if (!map.skipValue)
      map.node->entries.push_back({map.key, map.keyWhere, node});
    return;
  }
  map.hasKey = true;
  map.key = node->text;
  map.keyWhere = where;
  map.skipValue = !node->isScalar();
  if (map.skipValue) {
    diagnostics.error(where, "a key must be a plain name");
    return;
  }
  for (const YamlEntry &entry : map.node->entries)
    if (entry.key == map.key) {
      diagnostics.error(where, fmt::format("duplicate key '{}', first given on line {}", map.key, entry.keyWhere.line));
      map.skipValue = true;
    }
}

// YAML 1.1 merge key: `<<: *defaults` (or a list) adds keys that the map itself does not have.
void TreeBuilder::mergeInto(YamlNode &map) {
  auto merge = map.entries.begin();
  while (merge != map.entries.end() && merge->key != "<<")
    ++merge;
  if (merge == map.entries.end())
    return;
  YamlEntry entry = *merge;
  map.entries.erase(merge);
  std::vector<YamlPtr> sources = {entry.value};
  if (entry.value->isSequence())
    sources = entry.value->items;
  for (const YamlPtr &source : sources) {
    if (!source->isMap()) {
      diagnostics.error(entry.keyWhere, "'<<' takes a map or a list of maps");
      continue;
    }
    for (const YamlEntry &from : source->entries)
      if (!map.find(from.key))
        map.entries.push_back(from);
  }
}

} // namespace

YamlPtr parseYaml(const std::string &file, std::string_view text, Diagnostics &diagnostics, const YamlLimits &limits) {
  if (text.size() > limits.bytes) {
    diagnostics.error({file, 0, 0}, fmt::format("file has more than {} bytes", limits.bytes));
    return nullptr;
  }
  diagnostics.addSource(file, text);
  TreeBuilder builder(file, diagnostics, limits);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      diagnostics.error({file, 1, 1}, "file is empty");
      return nullptr;
    }
    YamlPtr root = builder.root;
    if (!isClosed(text, builder.lastQuoted)) {
      diagnostics.error(builder.lastQuoted, "a quote begins here and has no end");
      return nullptr;
    }
    TreeBuilder second(file, diagnostics, limits);
    if (parser.HandleNextDocument(second) && second.root)
      diagnostics.error(second.root->where, "a second document in one file, only one is read");
    return root;
  } catch (const LimitReached &) {
    return nullptr;
  } catch (const YAML::Exception &fault) {
    auto [where, message] = faultOf(text, {file, fault.mark.line + 1, fault.mark.column + 1}, fault.msg);
    diagnostics.error(where, message);
    return nullptr;
  }
}

namespace {

/// The trees of files that a process reads repeatedly: an import reads every model file, each with the files that it is
/// based on. Keeps trees of at most `mostBytes` of text; the model files have 0.3 MB.
class KnownTrees {
public:
  /// Returns the tree of a file with an equal text, or null.
  YamlPtr find(const std::string &file, const std::string &text) {
    std::lock_guard lock(mutex);
    auto found = trees.find({file, text});
    return found == trees.end() ? nullptr : found->second;
  }
  void keep(const std::string &file, const std::string &text, const YamlPtr &tree) {
    std::lock_guard lock(mutex);
    if (bytes + text.size() > mostBytes)
      trees.clear(), bytes = 0;
    if (trees.emplace(std::pair(file, text), tree).second)
      bytes += text.size();
  }

private:
  static constexpr size_t mostBytes = size_t{16} << 20; // of one text at most YamlLimits::bytes
  std::mutex mutex;
  size_t bytes = 0; ///< of the texts of `trees`
  std::map<std::pair<std::string, std::string>, YamlPtr> trees;
};

} // namespace

YamlPtr loadYaml(const std::string &file, Diagnostics &diagnostics, const YamlLimits &limits) {
  static KnownTrees known;
  std::error_code ignored;
  if (std::filesystem::is_fifo(
          std::filesystem::symlink_status(file, ignored))) { // opening a pipe would wait for a writer
    diagnostics.error({file, 0, 0}, "cannot read the file, it is a pipe");
    return nullptr;
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  int reason = errno;
  std::string text, piece(size_t{1} << 16, '\0');
  if (!stream || !stream.read(piece.data(), 0)) {
    diagnostics.error({file, 0, 0}, "cannot read the file: " + rt::whyNotOpened(file, reason));
    return nullptr;
  }
  while (text.size() <= limits.bytes && (stream.read(piece.data(), std::ssize(piece)), stream.gcount() > 0))
    text.append(piece, 0, static_cast<size_t>(stream.gcount()));
  if (stream.bad() || (text.empty() && !stream.eof())) {
    diagnostics.error({file, 0, 0}, "cannot read the file, is it a folder?");
    return nullptr;
  }
  YamlPtr tree = known.find(file, text);
  if (tree && tree->expandedNodes <= limits.expandedNodes && tree->depth <= limits.depth) {
    diagnostics.addSource(file, text);
    return tree;
  }
  size_t before = diagnostics.count();
  tree = parseYaml(file, text, diagnostics, limits);
  if (tree && diagnostics.count() == before)
    known.keep(file, text, tree);
  return tree;
}

YamlPtr loadYamlMap(const std::string &file, const std::string &what, Diagnostics &diagnostics) {
  YamlPtr root = loadYaml(file, diagnostics);
  if (!root || root->isMap())
    return root;
  diagnostics.error({file, 1, 1}, what);
  return nullptr;
}

YamlPtr withValue(const YamlPtr &root, std::string_view path, const YamlPtr &value) {
  if (path.empty())
    return value;
  size_t dot = path.find('.');
  std::string key(path.substr(0, dot));
  std::string_view rest = dot == std::string_view::npos ? "" : path.substr(dot + 1);
  auto copy = root ? std::make_shared<YamlNode>(*root) : std::make_shared<YamlNode>();
  if (copy->isSequence()) {
    if (key.empty() || key.size() > 6 || key.find_first_not_of("0123456789") != std::string::npos)
      return nullptr;
    size_t index = std::stoul(key);
    if (index >= copy->items.size())
      return nullptr;
    copy->items[index] = withValue(copy->items[index], rest, value);
    return copy->items[index] ? copy : nullptr;
  }
  if (copy->isScalar())
    return nullptr;
  if (!root)
    copy->where = value->where;
  copy->kind = YamlNode::Kind::Map;
  for (YamlEntry &entry : copy->entries)
    if (entry.key == key) {
      entry.value = withValue(entry.value, rest, value);
      entry.keyWhere = value->where;
      return entry.value ? copy : nullptr;
    }
  YamlPtr made = withValue(nullptr, rest, value);
  copy->entries.push_back({key, value->where, made});
  return copy;
}

} // namespace espalier
