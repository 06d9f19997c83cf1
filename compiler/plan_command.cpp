#include "compiler/plan_command.h"

#include "compiler/plan/choose_plan.h"
#include "compiler/plan/fit_memory.h"
#include "compiler/plan/print_plan.h"
#include "compiler/plan/profile_model.h"
#include "planner/explain.h"
#include "planner/export_plan.h"

#include "mlir/IR/MLIRContext.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

namespace espalier {

namespace {

enum ExitCode { Success = 0, UserError = 2, NothingFits = 3 };

/// "tp=4,pp=12" as pins; a fault is printed.
std::optional<planner::Pins> parseWish(const std::string &text) {
  planner::Pins pins;
  using Setter = std::function<bool(const std::string &)>;
  auto number = [](auto &pin) -> Setter {
    return [&pin](const std::string &value) {
      int parsed = 0;
      auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
      if (error != std::errc() || end != value.data() + value.size() || parsed < 0)
        return false;
      pin = parsed;
      return true;
    };
  };
  std::map<std::string, Setter> setters = {{"dp", number(pins.dp)},
                                           {"tp", number(pins.tp)},
                                           {"pp", number(pins.pp)},
                                           {"cp", number(pins.cp)},
                                           {"ep", number(pins.ep)},
                                           {"zero", number(pins.zero)},
                                           {"virtual_stages", number(pins.virtualStages)},
                                           {"micro_batch_size", number(pins.microBatchSize)},
                                           {"micro_batches", number(pins.microBatches)},
                                           {"sequence_parallel",
                                            [&](const std::string &value) {
                                              pins.sequenceParallel = value == "true" || value == "1";
                                              return *pins.sequenceParallel || value == "false" || value == "0";
                                            }},
                                           {"schedule",
                                            [&](const std::string &value) {
                                              pins.schedule = parseSchedule(value);
                                              return value == planner::scheduleName(*pins.schedule);
                                            }},
                                           {"recompute", [&](const std::string &value) {
                                              pins.recompute = parseRecompute(value);
                                              return value == planner::recomputeName(*pins.recompute);
                                            }}};
  bool isSound = true;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size()), equals = text.find('=', begin);
    std::string key = text.substr(begin, std::min(equals, end) - begin);
    auto setter = setters.find(key);
    if (setter == setters.end() || equals >= end || !setter->second(text.substr(equals + 1, end - equals - 1))) {
      std::string known;
      for (const auto &[name, unused] : setters)
        known += (known.empty() ? "" : ", ") + name;
      fmt::print(stderr, "espalier plan: error: --why-not wants KEY=VALUE,.. with keys {}; got '{}'\n", known,
                 text.substr(begin, end - begin));
      isSound = false;
    }
    begin = end + 1;
  }
  return isSound ? std::optional(pins) : std::nullopt;
}

/// The pinned plan first, then what the planner would choose without the pins.
planner::SearchResult pricePinned(const RunConfig &run, planner::Problem problem,
                                  const planner::SearchOptions &options) {
  problem.pins = {};
  planner::SearchResult result = planner::search(problem, options);
  planner::PricedPlan pinned = planner::pricePlan(problem, pinnedPlan(run));
  result.plans.insert(result.plans.begin(), pinned);
  result.statistics.optimal = false; // the best of the space need not be the pinned one
  return result;
}

int printAnswer(const PlanArguments &arguments, const RunConfig &run, const planner::Problem &problem,
                const planner::SearchResult &result) {
  for (const std::string &error : result.errors)
    fmt::print(stderr, "{}: error: {}\n", arguments.file, error);
  if (arguments.json)
    fmt::print("{}\n", planJson(run, problem, result));
  else if (result.errors.empty())
    fmt::print("{}", planner::explainPlans(result));
  if (!result.plans.empty() && !result.plans.front().prediction.fits())
    fmt::print(stderr,
               "{}: error: the pinned plan needs {:.2f} GB per rank, have {:.2f} GB; parallel.parallel_mode=2 leaves "
               "the choice to the planner\n",
               arguments.file, result.plans.front().prediction.peakBytes / 1e9,
               result.plans.front().prediction.memoryLimitBytes / 1e9);
  if (!result.errors.empty())
    return UserError;
  return result.plans.empty() || !result.plans.front().prediction.fits() ? NothingFits : Success;
}

/// What is asked about the chosen plan, instead of the table of plans or beside it. Returns whether it could be done.
bool answerQuestions(const PlanArguments &arguments, const planner::Problem &problem, const planner::Plan &plan) {
  if (!arguments.trace.empty()) {
    std::ofstream stream(arguments.trace + ".partial");
    stream << planner::traceJson(problem, plan);
    stream.close();
    std::error_code error;
    if (stream)
      std::filesystem::rename(arguments.trace + ".partial", arguments.trace, error);
    if (!stream || error) {
      fmt::print(stderr, "{}: error: cannot write the trace; is the folder there and writable?\n", arguments.trace);
      return false;
    }
  }
  if (arguments.exportTo.empty())
    return true;
  planner::ExportedPlan exported = arguments.exportTo == "megatron"      ? planner::exportMegatron(problem, plan)
                                   : arguments.exportTo == "mindformers" ? planner::exportMindFormers(problem, plan)
                                                                         : planner::exportTorchtitan(problem, plan);
  fmt::print("{}", exported.text);
  for (const std::string &left : exported.notExpressed)
    fmt::print(stderr, "{}: not expressed in {}: {}\n", arguments.file, arguments.exportTo, left);
  return true;
}

} // namespace

int planVerb(const PlanArguments &arguments) {
  std::optional<planner::Pins> wish;
  if (!arguments.whyNot.empty() && !(wish = parseWish(arguments.whyNot)))
    return UserError;
  ImportedRun imported = importRun(arguments.file, arguments.import);
  fmt::print(stderr, "{}", imported.diagnostics.render());
  if (!imported.ok())
    return UserError;
  RunConfig &run = imported.config;
  if (arguments.devices < 0) {
    fmt::print(stderr, "espalier plan: error: --devices must be at least 1, got {}\n", arguments.devices);
    return UserError;
  }
  if (arguments.devices > 0) {
    int perHost = std::min(run.cluster.devicesPerHost, arguments.devices);
    if (arguments.devices % perHost != 0) {
      fmt::print(stderr, "espalier plan: error: {} devices do not fill hosts of {}; take a multiple of {}\n",
                 arguments.devices, perHost, perHost);
      return UserError;
    }
    run.cluster.devicesPerHost = perHost;
    run.cluster.hosts = arguments.devices / perHost;
  }
  mlir::MLIRContext context;
  std::optional<planner::Problem> problem = profileModel(context, run);
  if (!problem)
    return UserError;
  planner::SearchOptions options;
  options.all = arguments.all;
  bool keepsPins = run.pins.pinned && arguments.devices == 0;
  if (run.pins.pinned && !keepsPins)
    problem->pins = {};
  planner::SearchResult result =
      keepsPins ? pricePinned(run, *problem, options) : searchCompiled(context, run, *problem, options);
  if (wish && !result.plans.empty()) {
    if (run.pins.pinned)
      problem->pins = {};
    planner::WhyNot answer = planner::whyNot(*problem, result.plans.front(), *wish, options);
    fmt::print("{}", arguments.json ? whyNotJson(answer) + "\n" : planner::printWhyNot(answer));
    return Success;
  }
  bool exports = !arguments.exportTo.empty() && !result.plans.empty();
  int code = exports ? static_cast<int>(Success) : printAnswer(arguments, run, *problem, result);
  if (!result.plans.empty() && !answerQuestions(arguments, *problem, result.plans.front().plan))
    return UserError;
  return code;
}

} // namespace espalier
