// Sections of reports (compiler/report/report.js) about plans and runs.
#pragma once

#include "format/plan.pb.h"
#include "runtime/run/run.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace espalier {

/// Returns the sections about a plan: summary, memory by stage, and bytes moved by each kind of transfer.
nlohmann::ordered_json planSections(const std::string &file, const rt::pb::Plan &plan);

/// Returns the sections about a run: summary, loss, gradient norm, learning rate, tokens per second, step time beside
/// the prediction (if its rates were calibrated on this machine), loads of experts, evaluations, and, if `trace` names
/// a file that the run wrote, its measured step.
nlohmann::ordered_json runSections(const std::string &trace, const rt::pb::Plan &plan, const rt::RunResult &result,
                                   bool isCalibrated);

/// Writes a report with a title. Throws DataError if the file cannot be written.
void writeReport(const std::string &file, const std::string &title, const std::string &subtitle,
                 const nlohmann::ordered_json &sections);

} // namespace espalier
