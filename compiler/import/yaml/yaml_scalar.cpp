// Converts scalars. Follows YAML 1.1 in common usage: `1e-8` is a number here, although PyYAML reads a string.
#include "compiler/import/yaml/yaml.h"

#include <cctype>
#include <charconv>
#include <cmath>

namespace espalier {

std::optional<bool> yamlBool(const YamlNode &node) {
  if (!node.isScalar() || node.quoted || node.text.size() > 5)
    return std::nullopt;
  std::string lower = node.text;
  for (char &c : lower)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower == "true" || lower == "yes" || lower == "on")
    return true;
  if (lower == "false" || lower == "no" || lower == "off")
    return false;
  return std::nullopt;
}

std::optional<int64_t> yamlInteger(const YamlNode &node) {
  if (!node.isScalar() || node.quoted)
    return std::nullopt;
  std::string digits;
  for (char c : node.text)
    if (c != '_')
      digits += c;
  if (digits.starts_with("+"))
    digits.erase(0, 1);
  int64_t value = 0;
  auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (fault != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

std::optional<double> yamlNumber(const YamlNode &node) {
  if (!node.isScalar() || node.quoted)
    return std::nullopt;
  std::string_view text = node.text;
  if (text.starts_with("+"))
    text.remove_prefix(1);
  // from_chars would also accept "inf" and "nan", which no setting uses.
  if (text.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return std::nullopt;
  double value = 0;
  auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::vector<std::string> yamlTexts(const YamlNode *node) {
  std::vector<std::string> list;
  if (node && node->isScalar())
    list.push_back(node->text);
  for (size_t i = 0; node && i < node->items.size(); ++i)
    list.push_back(node->items[i]->text);
  return list;
}

constexpr double mostBytes = 0x1p60; // one exbibyte, because sizes are 64-bit integers

std::optional<double> yamlBytes(const YamlNode &node) {
  if (!node.isScalar())
    return std::nullopt;
  const std::string &text = node.text;
  size_t unitAt = text.find_first_not_of("0123456789.eE+");
  YamlNode number;
  number.kind = YamlNode::Kind::Scalar;
  number.text = text.substr(0, unitAt);
  std::optional<double> value = yamlNumber(number);
  if (!value || *value < 0)
    return std::nullopt;
  std::string unit = unitAt == std::string::npos ? "" : text.substr(unitAt);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? 0 : unit.find_first_not_of(' '));
  const std::pair<const char *, double> units[] = {{"", 1},         {"B", 1},       {"KB", 0x1p10},  {"MB", 0x1p20},
                                                   {"GB", 0x1p30},  {"TB", 0x1p40}, {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                                   {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (auto [name, factor] : units)
    if (unit == name && *value * factor <= mostBytes)
      return *value * factor;
  return std::nullopt;
}

namespace {
constexpr size_t maxFlowText = 80;

void appendFlow(const YamlNode &node, std::string &text) {
  if (text.size() > maxFlowText)
    return;
  if (node.isScalar()) {
    text += node.quoted ? "\"" + node.text + "\"" : node.text;
    return;
  }
  if (node.kind == YamlNode::Kind::Null) {
    text += "null";
    return;
  }
  bool first = true;
  text += node.isMap() ? "{" : "[";
  for (const YamlPtr &item : node.items) {
    text += first ? "" : ", ";
    first = false;
    appendFlow(*item, text);
  }
  for (const YamlEntry &entry : node.entries) {
    text += (first ? "" : ", ") + entry.key + ": ";
    first = false;
    appendFlow(*entry.value, text);
  }
  text += node.isMap() ? "}" : "]";
}
} // namespace

std::string flowText(const YamlNode &node) {
  std::string text;
  appendFlow(node, text);
  if (text.size() <= maxFlowText)
    return text;
  // Cut at a character boundary: continuation bytes of UTF-8 are 10xxxxxx.
  size_t end = maxFlowText - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end) + "...";
}

} // namespace espalier
