#include "runtime/prometheus_text.h"

namespace espalier::rt {
namespace {

/// Escapes a label's value.
std::string escaped(const std::string &value) {
  std::string text;
  for (char letter : value)
    if (letter == '\n')
      text += "\\n";
    else if (letter == '\\' || letter == '"')
      text += {'\\', letter};
    else
      text += letter;
  return text;
}

} // namespace

std::string PrometheusText::textOf(const Labels &labels) {
  std::string list;
  for (const auto &[name, value] : labels)
    list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", name, escaped(value));
  return list.empty() ? "" : "{" + list + "}";
}

} // namespace espalier::rt
