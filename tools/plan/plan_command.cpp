// Imports the run file up to three times: unchanged, changed by a what-if or by pins, and with the plan of --why-not.
// Every import applies the same checks and reports source locations.
#include "tools/plan/plan_command.h"

#include "compiler/choose/choose_plan.h"
#include "compiler/choose/fit_memory.h"
#include "compiler/choose/print_plan.h"
#include "compiler/driver.h"
#include "compiler/import/run/pin_option.h"
#include "compiler/profile/profile_model.h"
#include "tools/command_line/exit_code.h"
#include "tools/plan/measured_step.h"
#include "tools/plan/plan_answer.h"
#include "tools/plan/plan_sweep.h"
#include "tools/plan/verbs.h"
#include "tools/plan/write_whole.h"

#include "messages/error_line.h"
#include "mlir/IR/MLIRContext.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>

namespace espalier {

namespace {

/// Prints the diagnostics of an import, unless they equal those already printed. Returns nothing if there are errors.
std::optional<RunConfig> report(ImportedRun imported, std::string &told) {
  if (std::string text = imported.diagnostics.render(); text != told) {
    fmt::print(stderr, "{}", text);
    told = text;
  }
  if (!imported.ok())
    return std::nullopt;
  return std::move(imported.config);
}

/// Imports the run file and reports its diagnostics.
std::optional<RunConfig> importOrReport(const std::string &file, const ImportOptions &options, std::string &told) {
  return report(importRun(file, options), told);
}

/// Returns whether the file itself has a key or one of its subkeys.
bool names(const ImportedRun &run, const std::string &key) {
  return std::ranges::any_of(
      run.keys, [&](const KeyReport &report) { return report.key == key || report.key.starts_with(key + "."); });
}

/// Returns the pins that remain when a run's own plan is freed: those that its profile depends on and, for an
/// evaluation, those without a choice.
planner::Pins freedPins(const RunConfig &run, const planner::Pins &pins) {
  planner::Pins freed = pins.profiled();
  if (run.runMode == "eval") {
    freed.zero = pins.zero;
    freed.zeroGroup = pins.zeroGroup;
    freed.recompute = pins.recompute;
    freed.schedule = pins.schedule;
    freed.virtualStages = pins.virtualStages;
  }
  return freed;
}

/// Returns the settings that keep the pins of a freed plan. A pin is left out if a search without it takes the same
/// value.
std::string repeatedPins(const planner::Problem &problem) {
  const planner::Pins &pins = problem.pins;
  const planner::Software &software = problem.software;
  std::string sets;
  auto repeat = [&](const char *key, std::optional<bool> value, bool usual, bool hasOther) {
    if (value && (*value != usual || hasOther))
      sets += fmt::format(" --set planner.pin.{}={}", key, *value ? "True" : "False");
  };
  repeat("vocab_parallel", pins.vocabParallel, /*usual=*/true, /*hasOther=*/false);
  repeat("expert_tensor_parallel", pins.splitsExperts, /*usual=*/true, software.hasWholeExperts);
  repeat("experts_over_context", pins.expertsOverContext, /*usual=*/false, software.hasExpertsOverContext);
  return sets;
}

/// Prints a note if the batch grows, because only the last batch is priced.
void tellRamp(const std::string &file, const planner::Problem &problem) {
  if (!problem.smallerBatches.empty())
    fmt::print(stderr, "{}: note: the batch grows from {} to {} samples; times are those of the last batch\n", file,
               std::ranges::min(problem.smallerBatches), problem.globalBatch);
}

/// Prints a note if a plan on fewer hosts has a shorter step. Plans use all devices, and their number may divide
/// badly.
void tellFewerHosts(const PlanArguments &arguments, const planner::SearchOptions &options, const Solved &solved) {
  if (solved.result.plans.empty() || solved.run.isPinned)
    return;
  planner::Problem problem = solved.problem; // profiled for all numbers of tensor ranks
  planner::SearchOptions quick = options;
  quick.diagnose = quick.prove = quick.simplest = false; // only the fastest plan per number of hosts
  quick.alternatives = 0;
  quick.all = arguments.all || !problem.capability.runs(problem.pins);
  const double worthTelling = 1 - std::max(problem.error.comparison, 0.01);
  const int hosts = problem.machine.hosts;
  planner::PricedPlan best = solved.result.plans.front();
  best.prediction.stepSeconds = solved.result.statistics.fastestSeconds;
  for (int idle = 1; idle < std::min(hosts, 17); ++idle) {
    problem.machine.hosts = hosts - idle;
    quick.belowSeconds = worthTelling * best.prediction.stepSeconds;
    planner::SearchResult fewer = planner::search(problem, quick);
    if (!fewer.plans.empty() && fewer.plans.front().prediction.stepSeconds < quick.belowSeconds)
      best = fewer.plans.front();
  }
  int used = best.plan.ranks() / problem.machine.devicesPerHost;
  if (used < hosts)
    fmt::print(stderr, "{}: note: on {} of {} hosts a step would take {}: {}\n", arguments.file, used, hosts,
               planner::describeSeconds(best.prediction), planner::describePlan(best));
}

class PlanQuestion {
public:
  explicit PlanQuestion(const PlanArguments &arguments) : arguments(arguments) {
    constexpr int alternativesOfReports = 60;
    if (!arguments.report.empty())
      options.alternatives = alternativesOfReports;
    options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    printDiagnostics(context);
  }

  int answer() {
    if (!canWrite(arguments.report, "the report") || !canWrite(arguments.trace, "the trace") || !readRuns() ||
        !measured.fit(present))
      return UserError;
    std::optional<Solved> solved = solve(changed ? *changed : present, options.alternatives);
    if (!solved)
      return UserError;
    tellRamp(arguments.file, solved->problem);
    if (asksWhatIf) {
      leaveHostsIdle(*solved);
      if (idleDevices == 0)
        tellFewerHosts(arguments, options, *solved);
    }
    if (wished && !solved->result.plans.empty())
      return answerWish(*solved);
    std::optional<planner::WhatIf> comparison;
    if (asksWhatIf && !solved->result.plans.empty())
      comparison = compare(*solved);
    bool exports = !arguments.exportTo.empty() && !solved->result.plans.empty();
    int code = exports ? static_cast<int>(Success) : printAnswer(arguments, *solved, howToUse(*solved), comparison);
    if (!solved->result.plans.empty() && !(writeReport(arguments, *solved, nullptr) && writeExtras(arguments, *solved)))
      return UserError;
    return code;
  }

private:
  /// Reads the current run, and the changed run if an option changes it.
  bool readRuns() {
    ImportOptions plain = arguments.import;
    plain.cluster.clear();
    ImportedRun own = importRun(arguments.file, plain);
    bool isOtherCluster = !arguments.import.cluster.empty() && own.ok() && names(own, "cluster");
    hasPins = names(own, "planner.pin");
    if (!isOtherCluster)
      plain.cluster = arguments.import.cluster; // the file names no cluster, or one that cannot be used
    bool isRead = plain.cluster.empty();
    std::optional<RunConfig> run = isRead ? report(std::move(own), told) : importOrReport(arguments.file, plain, told);
    if (!run)
      return false;
    present = std::move(*run);
    if (present.runMode == "predict") {
      fmt::print(stderr,
                 "{}: error: plans that generate are not searched by time: `espalier compile` takes the one on the "
                 "fewest devices with room; run_mode: predict → train\n",
                 arguments.file);
      return false;
    }
    asksWhatIf = isOtherCluster || arguments.devices || arguments.loseNodes != 0;
    if (!asksWhatIf && !arguments.pin)
      return readWish(plain);
    ImportOptions other = changedOptions();
    bool keepsPlan = isOtherCluster && !arguments.devices && arguments.loseNodes == 0 && !arguments.pin;
    if (keepsPlan && importRun(arguments.file, arguments.import).ok())
      other = arguments.import; // the file's plan is also valid on the other cluster
    changed = importOrReport(arguments.file, other, told);
    return changed && readWish(other);
  }

  /// Reads the plan of --why-not as pins of the current query. Contradictions are reported before any search.
  bool readWish(ImportOptions asked) {
    if (!arguments.whyNot)
      return true;
    asked.freeAtBatch = present.globalBatch;
    asked.pins.push_back({"--why-not", *arguments.whyNot});
    wished = importOrReport(arguments.file, asked, told);
    return wished.has_value();
  }

  /// Returns the import options for a run whose own plan does not apply. The planner is free at the current global
  /// batch.
  ImportOptions changedOptions() const {
    ImportOptions other = arguments.import;
    other.devices = arguments.devices;
    other.loseNodes = arguments.loseNodes;
    other.freeAtBatch = present.globalBatch;
    if (arguments.pin)
      other.pins.push_back({"--pin", *arguments.pin});
    return other;
  }

  /// Profiles a run, with the rates that a measured step gives.
  std::optional<planner::Problem> profileRun(const RunConfig &run) {
    std::optional<planner::Problem> problem = profiles.profile(run);
    if (problem)
      measured.apply(*problem);
    return problem;
  }

  /// Searches for plans. A pinned plan comes first, then the planner's choice without the pins.
  std::optional<Solved> solve(const RunConfig &run, int alternatives) {
    RunConfig profiled = run;
    if (run.isPinned)
      profiled.pins.cp.reset(); // the planner's choice may shard the sequence
    std::optional<planner::Problem> problem = profileRun(profiled);
    if (!problem)
      return std::nullopt;
    Solved solved{run, std::move(*problem), {}, {}, {}};
    planner::SearchOptions wanted = options;
    wanted.alternatives = alternatives;
    wanted.all = arguments.all || !solved.problem.capability.runs(solved.problem.pins);
    if (!run.isPinned) {
      solved.result = searchCompiled(context, run, solved.problem, wanted, arguments.target);
      return solved;
    }
    RunConfig freed = run;
    freed.isPinned = false;
    freed.pins = solved.problem.pins = freedPins(run, solved.problem.pins);
    solved.result = searchCompiled(context, freed, solved.problem, wanted, arguments.target);
    std::vector<planner::PricedPlan> &plans = solved.result.plans;
    if (!plans.empty())
      solved.best = plans.front();
    planner::PricedPlan pinned = planner::pricePlan(solved.problem, pinnedPlan(run));
    auto isPinned = [&](const planner::PricedPlan &other) {
      return other.prediction.stepSeconds == pinned.prediction.stepSeconds &&
             planner::describePlan(other.plan) == planner::describePlan(pinned.plan);
    };
    bool isBest = solved.best && isPinned(*solved.best);
    solved.first = isBest ? planner::FirstPlan::OwnAndBest : planner::FirstPlan::Own;
    solved.result.statistics.optimal &= isBest;
    std::erase_if(plans, isPinned);
    plans.insert(plans.begin(), pinned);
    return solved;
  }

  /// If no split of all devices is possible with the global batch, uses the largest number of hosts that is.
  void leaveHostsIdle(Solved &solved) {
    const ClusterConfig all = solved.run.cluster;
    auto isIndivisible = [](const planner::SearchResult &result) {
      return result.plans.empty() && result.nearest.plan.stages.empty();
    };
    if (!isIndivisible(solved.result))
      return;
    for (int idle = 1; idle < std::min(all.hosts, 64); ++idle) {
      ImportOptions fewer = changedOptions();
      fewer.loseNodes += idle;
      ImportedRun imported = importRun(arguments.file, fewer);
      if (!imported.ok())
        continue;                                // the pins do not allow this number of hosts
      planner::Problem problem = solved.problem; // profiled for all numbers of tensor ranks
      problem.machine.hosts = imported.config.cluster.hosts;
      planner::SearchOptions quick = options;
      quick.diagnose = quick.simplest = false;
      quick.all = arguments.all || !problem.capability.runs(problem.pins);
      if (planner::search(problem, quick).plans.empty())
        continue;
      if (std::optional<Solved> some = solve(imported.config, options.alternatives)) {
        fmt::print(stderr, "{}: {}; {} of {} hosts are left idle\n", arguments.file, solved.result.binding, idle,
                   all.hosts);
        for (const planner::Relaxation &relaxation : solved.result.relaxations)
          fmt::print(stderr, "  all would be used with {}\n", relaxation.change);
        solved = std::move(*some);
        idleDevices = idle * all.devicesPerHost;
      }
      return;
    }
  }

  std::optional<planner::WhatIf> compare(const Solved &solved) {
    std::optional<Solved> before = solve(present, /*alternatives=*/0);
    if (!before || before->result.plans.empty()) {
      fmt::print(stderr, "{}: nothing to compare with: no plan fits the present cluster\n", arguments.file);
      return std::nullopt;
    }
    planner::WhatIf answer;
    answer.before = before->result.plans.front();
    answer.after = solved.result.plans.front();
    answer.bestBefore = before->best;
    answer.bestAfter = solved.best;
    answer.machineBefore = present.cluster.name;
    answer.machineAfter = solved.run.cluster.name;
    answer.devicesBefore = present.cluster.devices();
    answer.idleDevices = idleDevices;
    answer.devicesAfter = solved.run.cluster.devices() + idleDevices;
    return answer;
  }

  /// Formats how to get the answer for `run`, given what this query assumes: the settings of a run that has this
  /// answer.
  std::string howToUse(const Solved &solved) const {
    const RunConfig &run = solved.run;
    std::string sets;
    if (present.isPinned) {
      sets = fmt::format(" --set parallel.parallel_mode=2{} --set planner.global_batch={}",
                         hasPins ? " --set planner.pin={}" : "", run.globalBatch);
      if (run.isPinned)
        sets += repeatedPins(solved.problem);
    }
    for (const std::string &pin : arguments.pin ? pinsOf(*arguments.pin) : std::vector<std::string>())
      sets += " --set planner.pin." + pin;
    if (asksWhatIf)
      return fmt::format("to use the answer on such devices name them with --cluster{}",
                         sets.empty() ? "" : " and add" + sets);
    if (sets.empty())
      return run.matmulFormat.empty() ? "`espalier compile` and `espalier train` take the answer"
                                      : "`--export megatron` writes the flags of the answer";
    return "to use the answer add" + sets;
  }

  int answerWish(Solved &solved) {
    const planner::Pins &wish = wished->pins;
    const planner::Pins &profiled = solved.run.pins;
    bool otherVocabulary = wish.vocabParallel && wish.vocabParallel != profiled.vocabParallel.value_or(true);
    bool otherExperts =
        wish.splitsExperts != profiled.splitsExperts || wish.expertsOverContext != profiled.expertsOverContext;
    if (otherVocabulary || otherExperts) {
      std::optional<planner::Problem> problem = profileRun(*wished);
      if (!problem)
        return UserError;
      solved.problem = std::move(*problem);
    }
    if (solved.run.isPinned)
      solved.problem.pins = freedPins(solved.run, solved.problem.pins);
    planner::SearchOptions all = options;
    all.all = arguments.all || !solved.problem.capability.runs(wish);
    planner::WhyNot answer = planner::whyNot(solved.problem, solved.result, wish, all);
    if (answer.impossible) {
      for (const std::string &reason : answer.violated)
        printError("--why-not:1:1", reason);
      return UserError;
    }
    fmt::print("{}", arguments.json ? whyNotJson(answer) + "\n" : planner::printWhyNot(answer));
    return writeReport(arguments, solved, &answer) ? Success : UserError;
  }

  const PlanArguments &arguments;
  planner::SearchOptions options;
  mlir::MLIRContext context;
  ProfileCache profiles{context, arguments.target};
  MeasuredStep measured{arguments, profiles};
  RunConfig present;
  std::optional<RunConfig> changed, wished;
  bool asksWhatIf = false;
  std::string told; ///< diagnostics of the latest import, which are not printed twice
  int idleDevices = 0;
  bool hasPins = false; ///< the file has planner.pin
};

} // namespace

void addPlanVerb(const Verb &app) {
  auto shared = std::make_shared<PlanArguments>();
  PlanArguments &arguments = *shared;
  Verb plan = app.verb("plan", "the best plans of a run with time, memory and reasons");
  addRunFile(plan, arguments.file, arguments.import);
  plan.option("--system", arguments.import.system,
              "the software that will run the plan, NAME of configs/systems or FILE; default: the file's, or espalier");
  plan.flag("--all", arguments.all, "also plans that cannot be executed yet");
  Option json = plan.flag("--json", arguments.json, "as JSON");
  plan.option("--pin", arguments.pin, "only plans like this: tp=8,pp=2,stage_layers=[19,21]; all keys of planner.pin");
  Option devices = plan.option("--devices", arguments.devices, "what if the cluster had so many devices");
  Option lose = plan.option("--lose-node", arguments.loseNodes, "what if the cluster had so many hosts fewer");
  Option whyNot = plan.option("--why-not", arguments.whyNot, "explain why a plan is not the best one: tp=4,pp=12");
  // --why-not replaces the plan, so there is nothing to trace or export. An export replaces the table.
  Option trace =
      plan.option("--trace", arguments.trace, "file for the simulated step in Chrome's trace format").excludes(whyNot);
  Option report =
      plan.option("--report", arguments.report, "file for a report as HTML: timeline, memory, time and the plans");
  Option exports = plan.option("--export", arguments.exportTo, "print the plan as another system's flags or YAML")
                       .oneOf({"megatron", "mindformers", "torchtitan"})
                       .excludes(whyNot)
                       .excludes(json);
  Option sweep =
      plan.option("--sweep", arguments.sweep,
                  "time and cost for several numbers of devices: devices=64..1024 (doubling) or devices=8,12,16");
  Option whatIf = plan.option("--what-if", arguments.whatIf,
                              "the best plan after each change: link=2x,memory=141GB,devices=128 (also network, "
                              "bandwidth, compute)")
                      .excludes(sweep);
  Option measured =
      plan.option("--measured", arguments.measured,
                  "a step of the file's own plan, such as 12.4s, to which the machine's rates are scaled");
  plan.option("--diff", arguments.diff, "print this script with the flags of the answer, for --export megatron")
      .needs(exports);
  for (const Option &table : {sweep, whatIf})
    for (const Option &other : {devices, lose, whyNot, trace, report, exports, measured}) // of one plan
      table.excludes(other);
  plan.option("--price", arguments.price, "price of a device hour, for --sweep").needs(sweep);
  addTarget(plan, arguments.target);
  plan.action([shared] {
    PlanArguments &arguments = *shared;
    arguments.import.needsCluster = true;
    if (!isTarget(arguments.target, arguments.file))
      return static_cast<int>(UserError);
    bool isTable = !arguments.sweep.empty() || !arguments.whatIf.empty();
    return isTable ? planSweep(arguments) : PlanQuestion(arguments).answer();
  });
}

} // namespace espalier
