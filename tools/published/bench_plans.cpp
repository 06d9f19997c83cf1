// `espalier bench plans`: compares predictions with tables of published runs.
#include "messages/error_line.h"
#include "tools/command_line/command_line.h"
#include "tools/command_line/exit_code.h"
#include "tools/plan/verbs.h"
#include "tools/published/report.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

/// The options of `bench plans`.
struct PlansArguments {
  std::vector<std::string> files;
  bool json = false, rows = false;
};

using nlohmann::ordered_json;
std::string readText(const std::string &file) {
  namespace fs = std::filesystem;
  constexpr uintmax_t mostBytes = 256 << 20;
  std::error_code error;
  uintmax_t bytes = fs::file_size(file, error);
  if (error)
    throw UsageError(fmt::format("{}: cannot be read as a table: {}", file, error.message()));
  if (bytes > mostBytes)
    throw UsageError(fmt::format("{}: has {} bytes, a table has at most {}", file, bytes, mostBytes));
  std::ifstream stream(file, std::ios::binary);
  std::string text(bytes, '\0');
  if (!stream.read(text.data(), static_cast<std::streamsize>(bytes)))
    throw UsageError(fmt::format("{}: cannot be read", file));
  return text;
}

/// Returns null if no row has a measurement.
ordered_json meanOrNull(const MeanError &error) { return error.rows ? ordered_json(error.mean()) : ordered_json(); }

/// Tests depend on the JSON keys. Times, errors and regrets are fractions, not per cent.
ordered_json describe(const TableReport &report, bool perRow) {
  ordered_json skipped = ordered_json::array(), groups = skipped, searched = skipped;
  for (const auto &[reason, count] : report.skipped)
    skipped.push_back({{"reason", reason}, {"count", count}});
  for (const RankedGroup &group : report.groups)
    groups.push_back({{"model", group.name},
                      {"plans", group.plans},
                      {"rows", group.rows},
                      {"spearman", group.spearman},
                      {"regret", group.regret},
                      {"exact_spearman", group.exactSpearman},
                      {"exact_regret", group.exactRegret}});
  for (const SearchedRow &row : report.searched)
    searched.push_back({{"line", row.line},
                        {"model", row.name},
                        {"measured_seconds", row.seconds},
                        {"best_seconds", row.predictedSeconds},
                        {"plan", row.plan}});
  ordered_json priced = ordered_json::array();
  for (const PricedRow &row : report.priced)
    if (perRow)
      priced.push_back({{"line", row.line},
                        {"cluster", row.cluster},
                        {"system", row.system},
                        {"measured_seconds", row.seconds},
                        {"predicted_seconds", row.predictedSeconds},
                        {"interval", row.timeError},
                        {"contents", row.contents},
                        {"is_range", row.isRange},
                        {"measured_gibibytes", row.gibibytes},
                        {"predicted_gibibytes", row.predictedGibibytes},
                        {"command", row.command}});
  return {{"table", report.name},
          {"rows", report.rows},
          {"evaluated", report.priced.size()},
          {"skipped", skipped},
          {"time_rows", report.time.rows},
          {"time_error_mean", meanOrNull(report.time)},
          {"time_bias", meanOrNull(report.bias)},
          {"null_model_time_error", meanOrNull(report.nullTime)},
          {"memory_rows", report.memory.rows},
          {"memory_error_mean", meanOrNull(report.memory)},
          {"oom_rows", report.outOfMemory},
          {"oom_refused", report.outOfMemoryRefused},
          {"fit_rows", report.fits},
          {"fits_refused", report.fitsRefused},
          {"assumed", report.assumed},
          {"without_plan", searched},
          {"repeats", report.repeats},
          {"noise", report.noise},
          {"groups", groups},
          {"rows_without_micro_batch", report.ranges},
          {"rows_in_range", report.inRange},
          {"priced", priced}};
}

} // namespace

static int benchPlans(const PlansArguments &arguments) {
  RunPricer pricer;
  std::vector<TableReport> reports;
  bool sound = true;
  for (const std::string &file : arguments.files) {
    PublishedTable table = readTable(readText(file));
    for (const TableFault &fault : table.faults)
      printError(fmt::format("{}:{}", file, fault.line), fault.message);
    sound = sound && table.faults.empty();
    if (table.rows.empty() && !table.faults.empty())
      continue; // not a table
    TableReport &report = reports.emplace_back(evaluateTable(file, table.rows, pricer));
    if (!table.faults.empty()) {
      report.rows += static_cast<int>(table.faults.size());
      report.skipped["no row of this table (see the errors)"] = static_cast<int>(table.faults.size());
    }
  }
  ordered_json tables = ordered_json::array();
  for (const TableReport &report : reports)
    if (arguments.json)
      tables.push_back(describe(report, arguments.rows));
    else
      fmt::print("{}", printReport(report, arguments.rows));
  if (arguments.json) // a cell may hold any bytes
    fmt::print("{}\n", tables.dump(2, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace));
  return sound ? Success : UserError;
}

void addBenchPlansVerb(const Verb &bench) {
  auto arguments = std::make_shared<PlansArguments>();
  Verb plans = bench.verb("plans", "the planner's error on tables of published training runs (CSV)");
  plans.option("file", arguments->files, "tables in the schema of published runs").required();
  plans.flag("--json", arguments->json, "one object per table");
  plans.flag("--rows", arguments->rows, "two lines for each row: its errors, and the command that prices it");
  plans.action([arguments] { return benchPlans(*arguments); });
}

} // namespace espalier
