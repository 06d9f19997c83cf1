#include "tools/plan/plan_sweep.h"

#include "compiler/choose/print_plan.h"
#include "compiler/driver.h"
#include "compiler/import/yaml/yaml.h"
#include "compiler/profile/profile_model.h"
#include "planner/answer/sweep.h"
#include "tools/command_line/exit_code.h"

#include "messages/error_line.h"
#include "mlir/IR/MLIRContext.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
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

/// A change of the machine: "link=2x", "memory=141GB" or "devices=128".
struct MachineChange {
  std::string text;
  std::string key;
  double factor = 0; ///< 0: `value` replaces the present one
  double value = 0;  ///< bytes, bytes/s or a number of devices
};

/// Reads one change. Returns nothing if it has another form.
std::optional<MachineChange> readChange(const std::string &text) {
  MachineChange change{text, text.substr(0, text.find('='))};
  constexpr std::string_view rates[] = {"link", "network", "memory", "bandwidth", "compute"};
  bool isDevices = change.key == "devices";
  if (change.key.size() + 1 >= text.size() || (!isDevices && std::ranges::find(rates, change.key) == std::end(rates)))
    return std::nullopt;
  YamlNode value;
  value.kind = YamlNode::Kind::Scalar;
  value.text = text.substr(change.key.size() + 1);
  bool isFactor = value.text.ends_with('x') && !isDevices;
  if (isFactor)
    value.text.pop_back();
  std::optional<double> number = isFactor || isDevices ? yamlNumber(value) : yamlBytes(value);
  constexpr double mostFactor = 1000, mostDevices = 1 << 20;
  if (!number || *number <= 0 || (isFactor && *number > mostFactor) ||
      (isDevices && (*number > mostDevices || *number != std::floor(*number))) ||
      (change.key == "compute" && !isFactor))
    return std::nullopt;
  (isFactor ? change.factor : change.value) = *number;
  return change;
}

/// Reads a list of changes. Returns an empty list if one of them has another form or repeats a key.
std::vector<MachineChange> readChanges(const std::string &text) {
  std::vector<MachineChange> changes;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::optional<MachineChange> change = readChange(text.substr(begin, end - begin));
    if (!change || std::ranges::find(changes, change->key, &MachineChange::key) != changes.end())
      return {};
    changes.push_back(*change);
    begin = end + 1;
  }
  return changes;
}

/// Applies a change to the cluster of a run. Memory that a run file limits stays limited.
void apply(const MachineChange &change, ClusterConfig &cluster) {
  auto changed = [&](double present) { return change.factor > 0 ? change.factor * present : change.value; };
  if (change.key == "link")
    cluster.link.bytesPerSecond = changed(cluster.link.bytesPerSecond);
  else if (change.key == "network")
    cluster.network.bytesPerSecond = changed(cluster.network.bytesPerSecond);
  else if (change.key == "bandwidth")
    cluster.memoryBytesPerSecond = changed(cluster.memoryBytesPerSecond);
  else if (change.key == "compute")
    cluster.peakFlops *= change.factor;
  else if (change.key == "memory") {
    double whole = changed(cluster.memoryBytes + cluster.marginBytes + cluster.reservedBytes);
    cluster.marginBytes = cluster.marginBytes > 0 ? cluster.memoryMargin * whole : 0;
    cluster.memoryBytes = std::max(0.0, whole - cluster.reservedBytes - cluster.marginBytes);
  }
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
    std::vector<MachineChange> changes = readChanges(arguments.whatIf);
    if (!arguments.whatIf.empty() && changes.empty()) {
      printError("--what-if",
                 fmt::format("wanted KEY=VALUE,... with different keys: devices=N; link, network, memory or "
                             "bandwidth=SIZE or FACTORx; compute=FACTORx; got {}",
                             arguments.whatIf));
      return UserError;
    }
    if (arguments.whatIf.empty() && counts.empty()) {
      printError("--sweep", fmt::format("wanted devices=LOW..HIGH or devices=N,N,..., got {}", arguments.sweep));
      return UserError;
    }
    ImportedRun file = importRun(arguments.file, arguments.import);
    fmt::print(stderr, "{}", file.diagnostics.render());
    if (!file.ok())
      return UserError;
    planner::Sweep sweep{{}, arguments.price};
    for (int devices : counts)
      sweep.points.push_back(pointAt(devices, {}, file.config.globalBatch));
    if (!changes.empty())
      addChanges(changes, file.config, sweep);
    if (arguments.json)
      fmt::print("{}\n", sweepJson(file.config, sweep));
    else
      fmt::print("{}", planner::printSweep(sweep));
    bool anyFits = std::ranges::any_of(sweep.points, [](const planner::SweepPoint &point) { return !!point.plan; });
    return anyFits ? Success : DoesNotFit;
  }

private:
  /// Adds the present machine, each change alone, and all of them.
  void addChanges(const std::vector<MachineChange> &changes, const RunConfig &run, planner::Sweep &sweep) {
    auto add = [&](const std::string &name, const std::vector<MachineChange> &some) {
      int devices = run.cluster.devices();
      for (const MachineChange &change : some)
        if (change.key == "devices")
          devices = static_cast<int>(change.value);
      sweep.points.push_back(pointAt(devices, some, run.globalBatch));
      sweep.points.back().change = name;
    };
    add("now", {});
    for (const MachineChange &change : changes)
      add(change.text, {change});
    if (changes.size() > 1)
      add("all of them", changes);
  }

  planner::SweepPoint pointAt(int devices, const std::vector<MachineChange> &changes, int64_t globalBatch) {
    planner::SweepPoint point{devices, "", std::nullopt, ""};
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
    for (const MachineChange &change : changes)
      apply(change, imported.config.cluster);
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
