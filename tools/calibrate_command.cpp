// `espalier calibrate`: measures this machine and writes a cluster file.
#include "tools/calibrate.h"
#include "tools/calibrate_device.h"
#include "tools/choose_device.h"
#include "tools/commands.h"

#include "runtime/data/atomic_file.h"
#include "runtime/plan_file.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <thread>

namespace espalier {

namespace {

struct CalibrateWords {
  std::string output, name, target = "cpu", device;
  std::vector<std::string> plans;
  int ranks = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 256u));
  double seconds = 0.1;
};

/// Letters, digits, - and _ of the file's stem: what a name is in YAML without quotes.
std::string nameOf(const std::string &output) {
  std::string name;
  for (char c : std::filesystem::path(output).stem().string())
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '_';
  bool isWord = !name.empty() && std::isalpha(static_cast<unsigned char>(name[0]));
  return isWord ? name : name.empty() ? "measured" : "measured_" + name;
}

std::string measure(const CalibrateWords &words) {
  std::string name = nameOf(words.name.empty() ? words.output : words.name);
  if (words.target == "cpu") {
    MeasuredMachine machine = measureMachine(words.ranks, words.seconds);
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
      throw rt::PlanError(fmt::format("{}: is compiled for {}, whose products have no algorithms to choose from; compile "
                                      "it with --target cuda",
                                      file, plan.target()));
  }
  return deviceClusterYaml(name, measureDevice(words.seconds, plans));
}

} // namespace

void addCalibrateCommand(CLI::App &app, int &) {
  CLI::App *calibrate = app.add_subcommand("calibrate", "Measure this machine and write a cluster file");
  auto words = std::make_shared<CalibrateWords>();
  calibrate->add_option("-o,--output", words->output, "the cluster file to write; default: standard output");
  calibrate->add_option("--name", words->name, "name of the cluster; default: that of the file");
  calibrate->add_option("--target", words->target, "cpu (default), or cuda: the GPUs that the driver shows")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  calibrate->add_option("--device", words->device, "of --target cuda: cuda (default) or emulated, to try the command")
      ->check(CLI::IsMember({"cuda", "emulated"}));
  calibrate->add_option("--plan", words->plans,
                        "of --target cuda: a plan whose products are tried, so that plans compiled with the file have "
                        "their fastest algorithms");
  calibrate->add_option("--ranks", words->ranks, "ranks (threads) that share the machine; default: its cores")
      ->check(CLI::Range(1, 256));
  calibrate->add_option("--seconds", words->seconds, "least time of each of a dozen measurements")
      ->check(CLI::Range(0.0, 60.0));
  calibrate->callback([words] {
    if (std::isnan(words->seconds)) // within every range
      throw CLI::ValidationError("--seconds", "must be a number of seconds, got nan");
    std::optional<rt::AtomicFile> file; // opened first: what cannot be written is not measured
    if (!words->output.empty())
      file.emplace(words->output);
    if (!words->device.empty() && words->target != "cuda")
      throw CLI::ValidationError("--device", "is of --target cuda");
    if (!words->plans.empty() && words->target != "cuda")
      throw CLI::ValidationError("--plan", "is of --target cuda");
    std::string text = measure(*words);
    if (!file) {
      fmt::print("{}", text);
      return;
    }
    file->write(text.data(), text.size());
    file->commit();
  });
}

} // namespace espalier
