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

struct CalibrateWords {
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

void printJson(const CalibrateWords &words, const std::string &text) {
  Diagnostics none;
  YamlPtr cluster = parseYaml(words.output, text, none);
  nlohmann::ordered_json answer = {{"schema", 1}, {"output", words.output}, {"cluster", asJson(*cluster)}};
  fmt::print("{}\n", answer.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

/// Measures the threads as ranks. Prints at most one line per second, because many ranks on few cores take minutes.
MeasuredMachine measureCpu(const CalibrateWords &words) {
  rt::FreeMemory free = rt::freeMemory();
  if (uint64_t needed = calibrationBytes(words.ranks); needed > free.bytes)
    throw rt::MemoryError(
        fmt::format("calibrating with {} takes {} MiB of memory, {} MiB are free ({}); give fewer with "
                    "--ranks",
                    rt::counted(words.ranks, "rank"), needed >> 20, free.bytes >> 20, free.source));
  unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  if (static_cast<unsigned>(words.ranks) > cores)
    fmt::print(stderr, "espalier: note: {} ranks share {}, so each measurement takes {} times as long\n", words.ranks,
               rt::counted(cores, "core"), (words.ranks + cores - 1) / cores);
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> last;
  return measureMachine(words.ranks, words.seconds, [&](const std::string &what) {
    if (last && Clock::now() - *last < std::chrono::seconds(1))
      return;
    last = Clock::now();
    fmt::print(stderr, "measuring {}\n", what);
  });
}

std::string measure(const CalibrateWords &words) {
  std::string name = clusterNameOf(words.name.empty() ? words.output : words.name);
  if (words.target == "cpu") {
    MeasuredMachine machine = measureCpu(words);
    if (!machine.spreads.empty())
      fmt::print(
          stderr,
          "espalier calibrate: warning: these figures cannot be repeated, something else runs on this machine: {}; "
          "the best of {} rounds counts; calibrate again on an idle machine, or with more --seconds\n",
          describeSpreads(machine), calibrationRounds);
    return clusterYaml(name, machine);
  }
  if (words.device == "emulated")
    loadEmulatedDevice(/*devices=*/2);
  std::vector<rt::pb::Plan> plans;
  for (const std::string &file : words.plans) {
    const rt::pb::Plan &plan = plans.emplace_back(rt::readPlan(file));
    if (std::vector<std::string> errors = rt::verifyPlan(plan); !errors.empty())
      throw rt::PlanError(fmt::format("{}: {}", file, errors.front()));
    if (plan.target() != "cuda")
      throw rt::PlanError(
          fmt::format("{}: is compiled for {}, whose products have no algorithms to choose from; compile "
                      "it with --target cuda",
                      file, plan.target()));
  }
  return deviceClusterYaml(name, measureDevice(words.seconds, plans));
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
  auto words = std::make_shared<CalibrateWords>();
  calibrate.option("-o,--output", words->output, "the cluster file to write; default: standard output");
  calibrate.option("--name", words->name, "name of the cluster; default: that of the file");
  calibrate.option("--target", words->target, "cpu (default), or cuda: the GPUs that the driver shows")
      .oneOf({"cpu", "cuda"});
  calibrate.option("--device", words->device, "of --target cuda: cuda (default) or emulated, to try the command")
      .oneOf({"cuda", "emulated"});
  calibrate.option("--plan", words->plans,
                   "of --target cuda: a plan whose products are tried, so that plans compiled with the file have "
                   "their fastest algorithms");
  calibrate.option("--ranks", words->ranks, "ranks (threads) that share the machine; default: its cores").range(1, 256);
  calibrate.option("--seconds", words->seconds, "least time of each of a dozen measurements").range(0.0, 60.0);
  calibrate.flag("--json", words->json, "print the cluster file as JSON");
  calibrate.action([words] {
    std::optional<rt::AtomicFile> file; // fail before the measurement if the file cannot be written
    if (!words->output.empty())
      file.emplace(words->output);
    if (!words->device.empty() && words->target != "cuda")
      throw UsageError("--device is of --target cuda");
    if (!words->plans.empty() && words->target != "cuda")
      throw UsageError("--plan is of --target cuda");
    std::string text = measure(*words);
    if (words->target == "cpu")
      keepMeasured(text);
    if (file) {
      file->write(text.data(), text.size());
      file->commit();
    }
    if (words->json)
      printJson(*words, text);
    else if (!file)
      fmt::print("{}", text);
  });
}

} // namespace espalier
