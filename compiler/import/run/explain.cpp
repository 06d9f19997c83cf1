// Prints the same reports as text and as JSON.
#include "compiler/import/run/explain.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

/// Converts "callbacks[0].prefix" to its form in the table: "callbacks[].prefix".
std::string tablePath(const std::string &key) {
  std::string path;
  bool isIndex = false;
  for (char c : key) {
    isIndex = isIndex && c != ']';
    if (!isIndex)
      path += c;
    isIndex = isIndex || c == '[';
  }
  return path;
}

bool matches(const std::string &path, const std::string &wanted) {
  return wanted.empty() || path == wanted || path.starts_with(wanted + ".") || path.starts_with(wanted + "[") ||
         path.ends_with("." + wanted) || tablePath(path) == wanted;
}

std::vector<KeyReport> selected(const ImportedRun &run, const std::string &key) {
  std::vector<KeyReport> reports;
  for (const KeyReport &report : run.keys)
    if (matches(report.key, key))
      reports.push_back(report);
  return reports;
}

std::string place(const SourceLocation &where) {
  return where.line > 0 ? fmt::format("{}:{}", where.file, where.line) : where.file;
}

/// Explains keys that the file does not have, if the query matches none of its keys.
std::string explainAbsent(const std::string &key) {
  std::string text;
  for (const KeyRule &rule : runKeys())
    if (matches(rule.path, tablePath(key)))
      text += fmt::format("{} is not given\n  type    {}\n  action  {}\n  effect  {}\n", rule.path,
                          keyTypeName(rule.type), keyActionName(rule.action), rule.effect);
  return text;
}

} // namespace

std::string explainRun(const ImportedRun &run, const std::string &key) {
  std::string text;
  std::vector<KeyReport> reports = selected(run, key);
  bool hasDerived = false;
  for (const KeyReport &report : reports)
    text += fmt::format("{}: {}\n  from    {}\n  action  {}\n  effect  {}\n", report.key, report.value,
                        place(report.where), keyActionName(report.action), report.effect);
  for (const DerivedValue &value : run.derived)
    if (key.empty() || value.name == key) {
      text += hasDerived || !key.empty() ? "" : "\nderived:\n";
      text += fmt::format("  {}: {}  ({})\n", value.name, value.value, value.reason);
      hasDerived = true;
    }
  if (reports.empty() && !hasDerived)
    return explainAbsent(key);
  return text;
}

std::string noSuchKey(const std::string &key) {
  std::vector<std::string> paths;
  for (const KeyRule &rule : runKeys())
    paths.push_back(rule.path);
  return fmt::format("no key '{}'{}", key, didYouMean(key, paths));
}

std::string explainRunJson(const ImportedRun &run, const std::string &key) {
  nlohmann::ordered_json json;
  json["file"] = run.config.file;
  json["keys"] = nlohmann::ordered_json::array();
  for (const KeyReport &report : selected(run, key))
    json["keys"].push_back({{"key", report.key},
                            {"value", report.value},
                            {"file", report.where.file},
                            {"line", report.where.line},
                            {"action", keyActionName(report.action)},
                            {"effect", report.effect}});
  json["derived"] = nlohmann::ordered_json::array();
  for (const DerivedValue &value : run.derived)
    if (key.empty() || value.name == key)
      json["derived"].push_back({{"name", value.name}, {"value", value.value}, {"reason", value.reason}});
  json["errors"] = nlohmann::ordered_json::array();
  json["warnings"] = nlohmann::ordered_json::array();
  for (const Diagnostic &finding : run.diagnostics.sorted())
    json[finding.severity == Severity::Error ? "errors" : "warnings"].push_back({{"file", finding.where.file},
                                                                                 {"line", finding.where.line},
                                                                                 {"column", finding.where.column},
                                                                                 {"message", finding.message}});
  // Invalid UTF-8 from the user's file must not stop the report.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

} // namespace espalier
