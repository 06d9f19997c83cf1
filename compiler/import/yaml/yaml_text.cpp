#include "compiler/import/yaml/yaml_text.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

namespace espalier {
namespace {

bool isControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// Returns whether a key can be written without quotes.
bool isPlainKey(const std::string &key) {
  auto isPlain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; };
  return !key.empty() && std::isalpha(static_cast<unsigned char>(key[0])) && std::ranges::all_of(key, isPlain);
}

/// Returns a scalar, an empty collection or null on one line.
std::string inlineText(const YamlNode &node) {
  switch (node.kind) {
  case YamlNode::Kind::Map:
    return "{}";
  case YamlNode::Kind::Sequence:
    return "[]";
  case YamlNode::Kind::Null:
    return "null";
  case YamlNode::Kind::Scalar:
    break;
  }
  bool isPlain = !node.quoted && !node.text.empty() && std::ranges::none_of(node.text, isControl);
  return isPlain ? node.text : quotedYaml(node.text);
}

bool hasLines(const YamlNode &node) { return !node.entries.empty() || !node.items.empty(); }

/// Appends the entries or items of a collection, each on lines of its own. The parser limits the depth.
void write(const YamlNode &node, const std::string &indent, std::string &text) {
  auto writeValue = [&](const std::string &lead, const YamlNode &value) {
    if (!hasLines(value)) {
      text += fmt::format("{}{} {}\n", indent, lead, inlineText(value));
      return;
    }
    text += fmt::format("{}{}\n", indent, lead);
    write(value, indent + "  ", text);
  };
  for (const YamlEntry &entry : node.entries)
    writeValue((isPlainKey(entry.key) ? entry.key : quotedYaml(entry.key)) + ":", *entry.value);
  for (const YamlPtr &item : node.items)
    writeValue("-", *item);
}

} // namespace

std::string quotedYaml(const std::string &text) {
  if (std::ranges::none_of(text, isControl)) {
    std::string quoted = "'";
    for (char c : text)
      quoted += c == '\'' ? "''" : std::string(1, c);
    return quoted + "'";
  }
  std::string quoted = "\"";
  for (char c : text)
    if (c == '\n')
      quoted += "\\n";
    else if (isControl(c))
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + "\"";
}

std::string yamlText(const YamlNode &root) {
  if (!hasLines(root))
    return inlineText(root) + "\n";
  std::string text;
  write(root, "", text);
  return text;
}

} // namespace espalier
