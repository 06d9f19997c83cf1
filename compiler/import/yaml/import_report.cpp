#include "compiler/import/yaml/import_report.h"

#include <fmt/format.h>

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

const char *actionOf(const ImportedKey &key) { return key.isUsed ? "used" : "ignored"; }

} // namespace

void addFindings(Json &answer, const Diagnostics &diagnostics) {
  answer["errors"] = Json::array();
  answer["warnings"] = Json::array();
  for (const Diagnostic &finding : diagnostics.sorted())
    answer[finding.severity == Severity::Error ? "errors" : "warnings"].push_back({{"file", finding.where.file},
                                                                                   {"line", finding.where.line},
                                                                                   {"column", finding.where.column},
                                                                                   {"message", finding.message}});
}

std::string importText(const std::vector<ImportedKey> &keys) {
  std::string text;
  for (const ImportedKey &key : keys)
    text += fmt::format("{}:{}:{}: {} {}: {}\n", key.where.file, key.where.line, key.where.column, actionOf(key),
                        key.key, key.effect);
  return text;
}

std::string importJson(const std::string &file, const std::string &output, const std::string &yaml,
                       const std::vector<ImportedKey> &keys, const Diagnostics &diagnostics) {
  Json answer = {{"schema", 1}, {"file", file}, {"output", output}};
  answer["run_file"] = diagnostics.hasErrors() ? nullptr : Json(yaml);
  answer["keys"] = Json::array();
  for (const ImportedKey &key : keys)
    answer["keys"].push_back(
        {{"key", key.key}, {"line", key.where.line}, {"action", actionOf(key)}, {"effect", key.effect}});
  addFindings(answer, diagnostics);
  return answer.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace espalier
