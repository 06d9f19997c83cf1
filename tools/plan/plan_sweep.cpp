#include "tools/plan/plan_sweep.h"

#include "compiler/choose/print_plan.h"
#include "compiler/driver.h"
#include "compiler/profile/profile_model.h"
#include "planner/answer/sweep.h"
#include "tools/command_line/exit_code.h"

#include "messages/error_line.h"
#include "mlir/IR/MLIRContext.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <thread>

namespace espalier {

namespace {

/// Reads a whole positive number from the front of `text` and removes it.
std::optional<int> takeNumber(std::string_view &text) {
  int number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 1)
    return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

/// Reads "devices=8,12,16", or "devices=64..1024", which doubles from 64 as far as 1024 and includes both. Returns an
/// empty list if the text is neither.
std::vector<int> readDevices(std::string_view text) {
  constexpr std::string_view key = "devices=", to = "..";
  if (!text.starts_with(key))
    return {};
  text.remove_prefix(key.size());
  std::vector<int> list;
  while (std::optional<int> number = takeNumber(text)) {
    list.push_back(*number);
    if (text.empty())
      return list;
    bool isRange = text.starts_with(to) && list.size() == 1;
    if (!isRange && !text.starts_with(','))
      return {};
    text.remove_prefix(isRange ? to.size() : 1);
    if (!isRange)
      continue;
    std::optional<int> last = takeNumber(text);
    if (!last || !text.empty() || *last < *number)
      return {};
    for (int64_t next = 2 * int64_t{*number}; next < *last; next *= 2)
      list.push_back(static_cast<int>(next));
    if (*last > *number)
      list.push_back(*last);
    return list;
  }
  return {};
}

class DeviceSweep {
public:
  explicit DeviceSweep(const PlanArguments &arguments) : arguments(arguments) {
    options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    options.alternatives = 0;
    options.relax = false;
    printDiagnostics(context);
  }

  int answer() {
    std::vector<int> counts = readDevices(arguments.sweep);
    if (counts.empty()) {
      printError("--sweep", fmt::format("wanted devices=LOW..HIGH or devices=N,N,..., got {}", arguments.sweep));
      return UserError;
    }
    ImportedRun file = importRun(arguments.file, arguments.import);
    fmt::print(stderr, "{}", file.diagnostics.render());
    if (!file.ok())
      return UserError;
    planner::Sweep sweep{{}, arguments.price};
    for (int devices : counts)
      sweep.points.push_back(pointAt(devices, file.config.globalBatch));
    if (arguments.json)
      fmt::print("{}\n", sweepJson(file.config, sweep));
    else
      fmt::print("{}", planner::printSweep(sweep));
    bool anyFits = std::ranges::any_of(sweep.points, [](const planner::SweepPoint &point) { return !!point.plan; });
    return anyFits ? Success : DoesNotFit;
  }

private:
  planner::SweepPoint pointAt(int devices, int64_t globalBatch) {
    planner::SweepPoint point{devices, std::nullopt, ""};
    ImportOptions other = arguments.import;
    other.devices = devices;
    other.freeAtBatch = globalBatch;
    if (arguments.pin)
      other.pins.push_back({"--pin", *arguments.pin});
    ImportedRun imported = importRun(arguments.file, other);
    if (!imported.ok()) {
      for (const Diagnostic &diagnostic : imported.diagnostics.sorted())
        if (diagnostic.severity == Severity::Error && point.reason.empty())
          point.reason = diagnostic.message;
      return point;
    }
    std::optional<planner::Problem> problem = profiles.profile(imported.config);
    if (!problem) {
      point.reason = "the model cannot be partitioned";
      return point;
    }
    options.all = arguments.all || !problem->capability.runs(problem->pins);
    planner::SearchResult result = planner::search(*problem, options);
    if (!result.plans.empty())
      point.plan = std::move(result.plans.front());
    else
      point.reason = result.errors.empty() ? result.binding : result.errors.front();
    return point;
  }

  const PlanArguments &arguments;
  planner::SearchOptions options;
  mlir::MLIRContext context;
  ProfileCache profiles{context, arguments.target};
};

} // namespace

int planSweep(const PlanArguments &arguments) { return DeviceSweep(arguments).answer(); }

} // namespace espalier
