// Prints the same reports as text and as JSON.
#include "compiler/import/run/explain.h"

#include "compiler/import/run/foreign_names.h"
#include "compiler/import/yaml/import_report.h"

#include <algorithm>
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
  for (const std::string &own : ownNamesOf(key)) // "tp" of other systems is parallel_config.model_parallel
    for (const KeyReport &report : run.keys)
      if (reports.empty() && report.key == own)
        return {report};
  return reports;
}

std::string place(const SourceLocation &where) {
  return where.line > 0 ? fmt::format("{}:{}", where.file, where.line) : where.file;
}

/// Explains keys that the file does not have, if the query matches none of its keys.
std::string explainAbsent(const std::string &key) {
  std::string text;
  std::vector<std::string> own = ownNamesOf(key);
  for (const KeyRule &rule : runKeys())
    if (own.empty() ? matches(rule.path, tablePath(key)) : rule.path == own.front())
      text += fmt::format("{} is not given\n  type    {}\n  action  {}\n  effect  {}\n", rule.path,
                          keyTypeName(rule.type), keyActionName(rule.action), rule.effect);
  return text;
}

constexpr size_t columns = 100, mostLines = 7;

/// Returns the sections of the used keys, with the last parts of their names, in lines of at most 100 columns.
std::string usedKeys(const ImportedRun &run) {
  std::string text, line = "used", section;
  for (const KeyReport &report : run.keys) {
    if (report.action != KeyAction::Used)
      continue;
    size_t dot = report.key.rfind('.');
    std::string own = dot == std::string::npos ? "" : report.key.substr(0, dot), name = report.key.substr(dot + 1);
    bool isFirst = line == "used";
    std::string word = own == section && !isFirst
                           ? ", " + name
                           : (isFirst ? "     " : "; ") + (own.empty() ? name : own + ": " + name);
    section = own;
    if (line.size() + word.size() > columns) {
      text += line + word.substr(0, 1) + "\n";
      line = "       ";
      word = word.substr(1);
    }
    line += word;
  }
  return line == "used" ? text : text + line + "\n";
}

/// Returns a line per key of an action, with the effect, and how many keys are left out.
std::string keysOf(const ImportedRun &run, KeyAction action, const char *heading) {
  std::string text;
  size_t count = 0;
  for (const KeyReport &report : run.keys)
    if (report.action == action && ++count <= mostLines)
      text += fmt::format("{:<9}{}: {}\n", count == 1 ? heading : "", report.key, report.effect);
  return count <= mostLines ? text : text + fmt::format("{:<9}and {} more\n", "", count - mostLines);
}

/// Explains the whole file on one screen.
std::string explainBriefly(const ImportedRun &run) {
  auto count = [&](KeyAction action) {
    return std::ranges::count_if(run.keys, [&](const KeyReport &report) { return report.action == action; });
  };
  std::string text = fmt::format("{}: {} keys: {} used, {} mapped, {} ignored", run.config.file, run.keys.size(),
                                 count(KeyAction::Used), count(KeyAction::Mapped), count(KeyAction::Accepted));
  if (auto rejected = count(KeyAction::Rejected))
    text += fmt::format(", {} refused", rejected);
  text += "\n";
  for (const DerivedValue &value : run.derived)
    text += fmt::format("  {}: {}\n", value.name, value.value);
  return text + usedKeys(run) + keysOf(run, KeyAction::Mapped, "mapped") + keysOf(run, KeyAction::Accepted, "ignored") +
         keysOf(run, KeyAction::Rejected, "refused") +
         "`--all` adds where each value came from and what it does; `espalier explain RUN KEY` explains one key\n";
}

} // namespace

std::string explainRun(const ImportedRun &run, const std::string &key, bool isWhole) {
  if (key.empty() && !isWhole)
    return explainBriefly(run);
  std::string text;
  std::vector<KeyReport> reports = selected(run, key);
  bool hasDerived = false;
  for (const KeyReport &report : reports)
    text += fmt::format("{}: {}\n  from    {}\n  action  {}\n  effect  {}\n", report.key, report.value,
                        place(report.where) + (run.replaced.contains(report.key)
                                                   ? ", replaces " + run.replaced.at(report.key)
                                                   : std::string()),
                        keyActionName(report.action), report.effect);
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
  if (std::vector<std::string> own = ownNamesOf(key); !own.empty())
    return fmt::format("no key '{}', did you mean '{}'?", key, own.front());
  for (const KeyRule &rule : runKeys())
    paths.push_back(rule.path);
  return fmt::format("no key '{}'{}", key, didYouMean(key, paths));
}

std::string explainRunJson(const ImportedRun &run, const std::string &key) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["file"] = run.config.file;
  json["keys"] = nlohmann::ordered_json::array();
  for (const KeyReport &report : selected(run, key)) {
    json["keys"].push_back({{"key", report.key},
                            {"value", report.value},
                            {"file", report.where.file},
                            {"line", report.where.line},
                            {"action", keyActionName(report.action)},
                            {"effect", report.effect}});
    if (auto old = run.replaced.find(report.key); old != run.replaced.end())
      json["keys"].back()["replaces"] = old->second;
  }
  json["derived"] = nlohmann::ordered_json::array();
  for (const DerivedValue &value : run.derived)
    if (key.empty() || value.name == key)
      json["derived"].push_back({{"name", value.name}, {"value", value.value}, {"reason", value.reason}});
  addFindings(json, run.diagnostics);
  // Invalid UTF-8 from the user's file must not stop the report.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

} // namespace espalier
