#include "compiler/import/yaml/findings_json.h"

namespace espalier {

void addFindings(nlohmann::ordered_json &answer, const Diagnostics &diagnostics) {
  answer["errors"] = nlohmann::ordered_json::array();
  answer["warnings"] = nlohmann::ordered_json::array();
  for (const Diagnostic &finding : diagnostics.sorted())
    answer[finding.severity == Severity::Error ? "errors" : "warnings"].push_back({{"file", finding.where.file},
                                                                                   {"line", finding.where.line},
                                                                                   {"column", finding.where.column},
                                                                                   {"message", finding.message}});
}

} // namespace espalier
