// `espalier calibrate`: measures this machine and writes a cluster file.
#include "tools/commands.h"
#include "tools/machine/calibrate.h"
#include "tools/machine/calibrate_device.h"
#include "tools/run/choose_device.h"

#include "compiler/import/yaml/yaml.h"
#include "format/host_machine.h"
#include "format/plan_file.h"
#include "messages/counted.h"
#include "runtime/files/atomic_file.h"
#include "runtime/memory_check.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

namespace espalier {

namespace {

struct CalibrateArguments {
  std::string output, name, target = "cpu", device;
  std::vector<std::string> plans;
  int ranks = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 256u));
  double seconds = 0.1;
  bool json = false;
};

/// Returns a cluster file as JSON.
nlohmann::ordered_json asJson(const YamlNode &node) {
  if (node.isMap()) {
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    for (const YamlEntry &entry : node.entries)
      map[entry.key] = asJson(*entry.value);
    return map;
  }
  if (node.isSequence()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const YamlPtr &item : node.items)
      list.push_back(asJson(*item));
    return list;
  }
  std::optional<double> number = yamlNumber(node);
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(node.text);
}

void printJson(const CalibrateArguments &arguments, const std::string &text) {
  Diagnostics none;
  YamlPtr cluster = parseYaml(arguments.output, text, none);
  nlohmann::ordered_json answer = {{"schema", 1}, {"output", arguments.output}, {"cluster", asJson(*cluster)}};
  fmt::print("{}\n", answer.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

/// Measures the threads as ranks. Prints at most one line per second, because many ranks on few cores take minutes.
MeasuredMachine measureCpu(const CalibrateArguments &arguments) {
  rt::FreeMemory free = rt::freeMemory();
  if (uint64_t needed = calibrationBytes(arguments.ranks); needed > free.bytes)
    throw rt::MemoryError(
        fmt::format("calibrating with {} takes {} MiB of memory, {} MiB are free ({}); give fewer with "
                    "--ranks",
                    rt::counted(arguments.ranks, "rank"), needed >> 20, free.bytes >> 20, free.source));
  unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  if (static_cast<unsigned>(arguments.ranks) > cores)
    fmt::print(stderr, "espalier: note: {} ranks share {}, so each measurement takes {} times as long\n",
               arguments.ranks, rt::counted(cores, "core"), (arguments.ranks + cores - 1) / cores);
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> last;
  return measureMachine(arguments.ranks, arguments.seconds, [&](const std::string &what) {
    if (last && Clock::now() - *last < std::chrono::seconds(1))
      return;
    last = Clock::now();
    fmt::print(stderr, "measuring {}\n", what);
  });
}

std::string measure(const CalibrateArguments &arguments) {
  std::string name = clusterNameOf(arguments.name.empty() ? arguments.output : arguments.name);
  if (arguments.target == "cpu") {
    MeasuredMachine machine = measureCpu(arguments);
    if (!machine.spreads.empty())
      fmt::print(
          stderr,
          "espalier calibrate: warning: these figures cannot be repeated, something else runs on this machine: {}; "
          "the best of {} rounds counts; calibrate again on an idle machine, or with more --seconds\n",
          describeSpreads(machine), calibrationRounds);
    return clusterYaml(name, machine);
  }
  if (arguments.device == "emulated")
    loadEmulatedDevice(/*devices=*/2);
  std::vector<rt::pb::Plan> plans;
  for (const std::string &file : arguments.plans) {
    const rt::pb::Plan &plan = plans.emplace_back(rt::readPlan(file));
    if (std::vector<std::string> errors = rt::verifyPlan(plan); !errors.empty())
      throw rt::PlanError(fmt::format("{}: {}", file, errors.front()));
    if (plan.target() != "cuda")
      throw rt::PlanError(
          fmt::format("{}: is compiled for {}, whose products have no algorithms to choose from; compile "
                      "it with --target cuda",
                      file, plan.target()));
  }
  return deviceClusterYaml(name, measureDevice(arguments.seconds, plans));
}

/// Stores the rates of this machine for run files without a cluster.
void keepMeasured(const std::string &text) {
  std::filesystem::path file = rt::measuredMachineFile();
  if (file.empty())
    return;
  try {
    std::filesystem::create_directories(file.parent_path());
    rt::writeWhole(file, text);
  } catch (const std::exception &problem) {
    fmt::print(stderr, "espalier: note: run files without a cluster keep the default rates: {}\n", problem.what());
  }
}

} // namespace

void addCalibrateCommand(const Verb &app) {
  Verb calibrate = app.verb("calibrate", "Measure this machine and write a cluster file");
  auto arguments = std::make_shared<CalibrateArguments>();
  calibrate.option("-o,--output", arguments->output, "the cluster file to write; default: standard output");
  calibrate.option("--name", arguments->name, "name of the cluster; default: that of the file");
  calibrate.option("--target", arguments->target, "cpu (default), or cuda: the GPUs that the driver shows")
      .oneOf({"cpu", "cuda"});
  calibrate.option("--device", arguments->device, "of --target cuda: cuda (default) or emulated, to try the command")
      .oneOf({"cuda", "emulated"});
  calibrate.option("--plan", arguments->plans,
                   "of --target cuda: a plan whose products are tried, so that plans compiled with the file have "
                   "their fastest algorithms");
  calibrate.option("--ranks", arguments->ranks, "ranks (threads) that share the machine; default: its cores")
      .range(1, 256);
  calibrate.option("--seconds", arguments->seconds, "least time of each of a dozen measurements").range(0.0, 60.0);
  calibrate.flag("--json", arguments->json, "print the cluster file as JSON");
  calibrate.action([arguments] {
    std::optional<rt::AtomicFile> file; // fail before the measurement if the file cannot be written
    if (!arguments->output.empty())
      file.emplace(arguments->output);
    if (!arguments->device.empty() && arguments->target != "cuda")
      throw UsageError("--device is of --target cuda");
    if (!arguments->plans.empty() && arguments->target != "cuda")
      throw UsageError("--plan is of --target cuda");
    std::string text = measure(*arguments);
    if (arguments->target == "cpu")
      keepMeasured(text);
    if (file) {
      file->write(text.data(), text.size());
      file->commit();
    }
    if (arguments->json)
      printJson(*arguments, text);
    else if (!file)
      fmt::print("{}", text);
  });
}

} // namespace espalier
