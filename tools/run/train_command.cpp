// `espalier train`: compiles a run file and runs the plan. The compilation runs in a child process, so that a training
// run does not keep LLVM in memory.
#include "tools/commands.h"

#include "format/checksum.h"
#include "format/host_machine.h"
#include "messages/counted.h"
#include "runtime/status.h"
#include "tools/run/own_command.h"
#include "tools/run/plan_cache.h"
#include "tools/run/run_command.h"

#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

struct TrainArguments {
  std::string file, output;
  std::string cluster, target;
  std::vector<std::string> sets;
  RunArguments run;
};

/// Returns the options of `compile`, without the output.
std::vector<std::string> compileArguments(const TrainArguments &arguments) {
  std::vector<std::string> list = {"compile", arguments.file, "--json", "--here"};
  if (!arguments.cluster.empty())
    list.insert(list.end(), {"--cluster", arguments.cluster});
  if (!arguments.target.empty())
    list.insert(list.end(), {"--target", arguments.target});
  for (const std::string &set : arguments.sets)
    list.insert(list.end(), {"--set", set});
  return list;
}

/// Returns the plan's place in the cache: one per run file and options, so that a later call replaces it.
std::string cachedPlan(const std::vector<std::string> &compile, const std::string &file) {
  std::filesystem::path folder = planCache("-o X.plan names another place for the plan");
  std::string key = std::filesystem::absolute(file).lexically_normal().string();
  for (const std::string &word : compile)
    key += '\0' + word;
  return folder / fmt::format("{}-{:016x}.plan", std::filesystem::path(file).stem().string(),
                              rt::checksum(std::as_bytes(std::span(key))));
}

std::string bytesText(double bytes) {
  return bytes < 100 * 0x1p20 ? fmt::format("{:.2f} MB", bytes / 0x1p20) : fmt::format("{:.2f} GB", bytes / 0x1p30);
}

/// Says for which machine a step is priced, if it is this one.
std::string ratesText(const nlohmann::json &cluster) {
  bool isMeasured = cluster["measured_on"].get<std::string>() == rt::machineName();
  if (!isMeasured && cluster["name"].get<std::string>() != "this_machine")
    return "";
  return fmt::format("; for this machine, at {} rates of its {}", isMeasured ? "measured" : "default",
                     rt::counted(rt::machineCores(), "core"));
}

/// Prints the plan, the reason for it, and what the planner predicts.
void showPlan(const TrainArguments &arguments, const nlohmann::json &compiled) {
  fmt::print("plan       {} on {} ranks: {}, global batch {}\n", compiled["model"].get<std::string>(),
             compiled["ranks"].get<int>(), compiled["description"].get<std::string>(),
             compiled["global_batch"].get<int64_t>());
  fmt::print("why        {}\n", compiled["reason"].get<std::string>());
  if (const nlohmann::json &predicted = compiled["predicted"]; !predicted.is_null()) {
    std::string binds = predicted["binds"]; // its second part repeats the memory
    fmt::print("predicted  {:.4g} s ± {:.0f} % a step, {:.0f} tokens/s, {} of {} per rank; {}{}\n",
               predicted["step_seconds"].get<double>(), 100 * predicted["error"].get<double>(),
               predicted["tokens_per_second"].get<double>(),
               bytesText(std::ranges::max(predicted["memory_bytes"].get<std::vector<double>>())),
               bytesText(predicted["memory_limit_bytes"].get<double>()), binds.substr(0, binds.find(';')),
               ratesText(compiled["cluster"]));
  }
  fmt::print("others     espalier plan {}\n", arguments.file);
  std::fflush(stdout);
}

int train(TrainArguments &arguments) {
  std::vector<std::string> compile = compileArguments(arguments);
  arguments.run.plan = arguments.output.empty() ? cachedPlan(compile, arguments.file) : arguments.output;
  compile.insert(compile.end(), {"-o", arguments.run.plan});
  if (!arguments.run.options.checkpoint.empty())
    compile.insert(compile.end(), {"--checkpoint", arguments.run.options.checkpoint.string()});
  requirePlaces(arguments.run, arguments.target);
  ChildResult compiled = runOwnCommand(compile, ChildOutput::Captured);
  if (compiled.exitCode != Success)
    return compiled.exitCode;
  if (!arguments.run.json && !arguments.run.quiet)
    showPlan(arguments, nlohmann::json::parse(compiled.output));
  return runPlanFile(arguments.run);
}

} // namespace

void addTrainCommand(const Verb &app) {
  Verb command = app.verb("train", "Compile a run file and train by its plan");
  auto arguments = std::make_shared<TrainArguments>();
  command.option("RUN", arguments->file, "run file (YAML)").required();
  command.option("-o,--output", arguments->output,
                 "the .plan file to write; default: a file in ~/.cache/espalier/plans");
  command.option("--set", arguments->sets, "section.key=value over the file's value; may be repeated").oneValueEach();
  command.option("--cluster", arguments->cluster, "cluster NAME, NAME:HOSTSxDEVICES or FILE instead of the file's");
  command.option("--target", arguments->target, "what to compile for: cpu (default) or cuda").oneOf({"cpu", "cuda"});
  addRunOptions(command, arguments->run);
  command.action([arguments] { return train(*arguments); });
}

} // namespace espalier
