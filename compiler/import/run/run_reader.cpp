// Resolves paths and converts values. The meaning of keys is defined elsewhere.
#include "compiler/import/run/run_reader.h"

#include <algorithm>

namespace espalier {

namespace {

const YamlNode *findBelow(const YamlNode *node, const std::string &path) {
  for (size_t begin = 0; node && begin <= path.size();) {
    size_t end = std::min(path.find('.', begin), path.size());
    node = node->find(std::string_view(path).substr(begin, end - begin));
    begin = end + 1;
  }
  return node && node->kind != YamlNode::Kind::Null ? node : nullptr;
}

} // namespace

const YamlNode *RunReader::find(const std::string &path) const {
  const YamlNode *found = above ? findBelow(above, path) : nullptr;
  return found ? found : findBelow(&root, path);
}

std::optional<int64_t> RunReader::integer(const std::string &path) const {
  const YamlNode *node = find(path);
  return node ? yamlInteger(*node) : std::nullopt;
}
std::optional<double> RunReader::number(const std::string &path) const {
  const YamlNode *node = find(path);
  return node ? yamlNumber(*node) : std::nullopt;
}
std::optional<bool> RunReader::flag(const std::string &path) const {
  const YamlNode *node = find(path);
  return node ? yamlBool(*node) : std::nullopt;
}
std::optional<std::string> RunReader::text(const std::string &path) const {
  const YamlNode *node = find(path);
  return node && node->isScalar() ? std::optional(node->text) : std::nullopt;
}
std::optional<double> RunReader::bytes(const std::string &path) const {
  const YamlNode *node = find(path);
  return node ? yamlBytes(*node) : std::nullopt;
}

int RunReader::nearness(const std::string &path) const {
  const YamlNode *node = find(path);
  if (!node)
    return -1;
  return node->where.file == kSetSource ? 2 : node->where.file == run.config.file ? 1 : 0;
}

SourceLocation RunReader::where(const std::string &path) const {
  const YamlNode *node = find(path);
  return node ? node->where : SourceLocation{run.config.file, 0, 0};
}
void RunReader::error(const std::string &path, std::string message) const {
  run.diagnostics.error(where(path), std::move(message));
}
void RunReader::warning(const std::string &path, std::string message) const {
  run.diagnostics.warning(where(path), std::move(message));
}
void RunReader::refuse(const std::string &path, const std::string &message) const {
  report(path, KeyAction::Rejected, message);
  run.diagnostics.refusal(where(path), message);
}

void RunReader::report(const std::string &path, KeyAction action, const std::string &effect) const {
  for (KeyReport &key : run.keys)
    if (key.key == path || key.key.starts_with(path + ".")) {
      key.action = action;
      key.effect = effect;
    }
}

void RunReader::derive(const std::string &name, const std::string &value, const std::string &reason) const {
  run.derived.push_back({name, value, reason});
}

} // namespace espalier
