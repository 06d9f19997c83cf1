#include "compiler/import/run/pin_option.h"

#include "compiler/import/run/run_keys.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace espalier {

namespace {

constexpr size_t longestOption = 4096;

const std::map<std::string, std::string> &shortNames() {
  static const std::map<std::string, std::string> names = {
      {"mbs", "micro_batch_size"}, {"m", "micro_batches"}, {"sp", "sequence_parallel"}, {"vpp", "virtual_stages"}};
  return names;
}

std::vector<std::string> pinKeys() {
  const std::string prefix = "planner.pin.";
  std::vector<std::string> keys;
  for (const KeyRule &rule : runKeys())
    if (rule.path.starts_with(prefix))
      keys.push_back(rule.path.substr(prefix.size()));
  for (const auto &[name, key] : shortNames())
    keys.push_back(name);
  return keys;
}

YamlPtr scalar(const std::string &text, const SourceLocation &where) {
  auto node = std::make_shared<YamlNode>();
  node->kind = YamlNode::Kind::Scalar;
  node->where = where;
  node->text = text;
  return node;
}

/// Parses "5+7+7", or "[5, 7, 7]" as in run files, as a list with the location of each number.
YamlPtr list(const std::string &text, const SourceLocation &where) {
  bool isBracketed = text.starts_with('[') && text.ends_with(']');
  size_t last = text.size() - isBracketed;
  auto node = std::make_shared<YamlNode>();
  node->kind = YamlNode::Kind::Sequence;
  node->where = where;
  for (size_t begin = isBracketed; begin <= last;) {
    if (begin < last && text[begin] == ' ') {
      ++begin;
      continue;
    }
    size_t end = std::min(text.find(isBracketed ? ',' : '+', begin), last);
    SourceLocation place = where;
    place.column += static_cast<int>(begin);
    node->items.push_back(scalar(text.substr(begin, end - begin), place));
    begin = end + 1;
  }
  return node;
}

YamlPtr nested(const char *key, const YamlPtr &value) {
  auto node = std::make_shared<YamlNode>();
  node->kind = YamlNode::Kind::Map;
  node->where = value->where;
  node->entries.push_back({key, value->where, value});
  return node;
}

/// Returns the end of the pin that begins at `begin`: the next comma outside of brackets.
size_t endOfPin(const std::string &text, size_t begin) {
  size_t end = std::min(text.find(',', begin), text.size());
  if (size_t bracket = text.find("=[", begin); bracket < end)
    end = std::min(text.find(',', text.find(']', bracket)), text.size());
  return end;
}

} // namespace

std::vector<std::string> pinsOf(const std::string &text) {
  std::vector<std::string> pins;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = endOfPin(text, begin);
    pins.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pins;
}

YamlPtr readPinOption(const std::string &flag, const std::string &text, Diagnostics &diagnostics) {
  diagnostics.addSource(flag, text);
  auto pins = std::make_shared<YamlNode>();
  pins->kind = YamlNode::Kind::Map;
  pins->where = {flag, 1, 1};
  if (text.size() > longestOption)
    diagnostics.error({flag, 0, 0}, fmt::format("{} characters, at most {}", text.size(), longestOption));
  const std::vector<std::string> known = pinKeys();
  for (size_t begin = 0; begin <= text.size() && text.size() <= longestOption;) {
    size_t end = endOfPin(text, begin);
    std::string entry = text.substr(begin, end - begin);
    size_t blanks = std::min(entry.find_first_not_of(' '), entry.size());
    entry = entry.substr(blanks, entry.find_last_not_of(' ') + 1 - blanks);
    SourceLocation where{flag, 1, static_cast<int>(begin + blanks) + 1};
    begin = end + 1;
    size_t equals = entry.find('=');
    std::string key = entry.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == entry.size()) {
      diagnostics.error(where, fmt::format("wanted KEY=VALUE, got '{}'; keys are {}", entry, fmt::join(known, ", ")));
      continue;
    }
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      diagnostics.error(
          where, fmt::format("unknown key '{}'{}; keys are {}", key, didYouMean(key, known), fmt::join(known, ", ")));
      continue;
    }
    auto alias = shortNames().find(key);
    std::string full = alias == shortNames().end() ? key : alias->second, value = entry.substr(equals + 1);
    if (const YamlNode *earlier = pins->find(full)) {
      diagnostics.error(where, fmt::format("{} is given twice, first as {}", full, flowText(*earlier)));
      continue;
    }
    SourceLocation at = where;
    at.column += static_cast<int>(equals) + 1;
    pins->entries.push_back({full, where, full == "stage_layers" ? list(value, at) : scalar(value, at)});
  }
  return nested("planner", nested("pin", pins));
}

} // namespace espalier
