// `espalier run`: the options of a training run.
#include "tools/run/run_command.h"

#include "tools/commands.h"
#include "tools/run/resume_line.h"

#include "messages/counted.h"
#include "messages/error_line.h"
#include "messages/write_fault.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/elastic/attempt.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/run.h"
#include "runtime/run/startup_guard.h"
#include "runtime/run/summary.h"
#include "runtime/status.h"
#include "runtime/train/learning_rate.h"
#include "runtime/train/metrics.h"
#include "runtime/train/prometheus.h"
#include "runtime/train/stop.h"
#include "tools/checkpoint/save_hf.h"
#include "tools/report/drift.h"
#include "tools/report/plan_sections.h"
#include "tools/run/choose_device.h"
#include "tools/run/signed_plan.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <unistd.h>

namespace espalier {
namespace {

constexpr int mostSteps = 1000000000;

/// Writes the tensors of every step, with names "STEP/NAME".
void dump(const std::filesystem::path &file, const std::vector<rt::Tensors> &steps, int64_t lastStep) {
  std::vector<rt::TensorBytes> tensors;
  for (size_t i = 0; i < steps.size(); ++i)
    for (const auto &[name, values] : steps[i])
      tensors.push_back({fmt::format("{}/{}", lastStep - steps.size() + 1 + i, name),
                         rt::pb::F32,
                         {static_cast<int64_t>(values.size())},
                         std::as_bytes(std::span(values))});
  rt::writeSafetensors(file, tensors, {});
}

/// Checks before training that all output files can be written.
void checkFiles(const RunArguments &arguments) {
  const rt::RunOptions &options = arguments.options;
  for (const auto &[option, file] : std::initializer_list<std::pair<const char *, std::filesystem::path>>{
           {"--trace", options.trace},
           {"--status", options.status},
           {"--failure-report", options.failureReport},
           {"--report", arguments.report},
           {"--dump-gradients", arguments.dumpGradients},
           {"--dump-parameters", arguments.dumpParameters}}) {
    std::string fault = file.empty() ? "" : rt::writeFault(file);
    if (!fault.empty())
      throw rt::PlanError(
          fmt::format("{} {}: cannot be written: {}; name a file in a folder that can", option, file.string(), fault));
  }
  if (!options.prometheus.empty())
    rt::prometheusPlace(options.prometheus, options.prometheusTokenFile);
}

/// Rejects training options for an evaluation, where they would have no effect.
void refuseTrainingOptions(const RunArguments &arguments) {
  const rt::RunOptions &options = arguments.options;
  for (auto [option, isGiven] : {std::pair("--steps", arguments.steps.count() > 0),
                                 {"--save-every", options.saveEvery > 0},
                                 {"--save", options.save.has_value()},
                                 {"--on-divergence", options.onDivergence != rt::OnDivergence::stop},
                                 {"--keep", options.keep > 0},
                                 {"--save-hf", arguments.savesHf},
                                 {"--resume", options.resume},
                                 {"--eval-every", options.evalEvery > 0},
                                 {"--trace", !options.trace.empty()}})
    if (isGiven)
      throw rt::PlanError(
          fmt::format("{} is for a run that trains, and {} is a plan of run_mode eval, which reads its "
                      "data once; --eval-batches N reads less, and --set run_mode=train compiles a plan "
                      "that trains",
                      option, arguments.plan));
}

/// Reads and returns the plan and what is to be said of its signer. Throws if this command cannot run it with these
/// options.
rt::OwnedPlan readTrainingPlan(const RunArguments &arguments) {
  checkFiles(arguments);
  rt::OwnedPlan read = rt::readSignedPlan(arguments.plan, arguments.requiresSigner);
  const rt::pb::Plan &plan = read.plan;
  if (arguments.options.acceptChanges && !arguments.options.resume && !plan.settings().resume_training())
    throw rt::PlanError("--accept-changes is for a run that resumes another; give --resume, too");
  if (rt::findEntry(plan, "prefill"))
    throw rt::PlanError(
        fmt::format("{}: the plan of {} generates; one that trains is compiled with --set run_mode=train",
                    arguments.plan, plan.model()));
  if (rt::isForEvaluation(plan.settings()))
    refuseTrainingOptions(arguments);
  bool evaluates = arguments.options.evalEvery > 0 || rt::isForEvaluation(plan.settings());
  if (!evaluates && !arguments.evaluation.given().empty())
    throw rt::PlanError("--eval-batches and --eval-split are of evaluations, of which this run has none; give "
                        "--eval-every N");
  return read;
}

/// Sets the number of steps and describes it: "100 steps (--steps)".
std::string chooseSteps(RunArguments &arguments, const rt::pb::Settings &settings) {
  int64_t planned = settings.learning_rate().total_steps();
  const char *origin = "the default";
  if (arguments.steps.count() > 0) {
    origin = "--steps";
  } else if (planned > 0) {
    arguments.options.steps = planned;
    origin = "lr_schedule.total_steps";
  } else {
    fmt::print(
        stderr,
        "espalier: warning: {}: nothing gives the number of steps, so that this run makes {}; give --steps N, or "
        "lr_schedule.total_steps in the run file\n",
        arguments.plan, arguments.options.steps);
  }
  return fmt::format("{} ({})", rt::counted(arguments.options.steps, "step"), origin);
}

/// Says that a run goes on after the end of a learning-rate schedule, and at which rate.
void noteScheduleEnd(const rt::RunOptions &options, const rt::pb::Settings &settings) {
  auto note = [&](const std::string &key, const rt::pb::LearningRate &schedule) {
    int64_t end = schedule.total_steps();
    if (end <= 0 || options.steps <= end)
      return;
    double rate = rt::learningRate(schedule, end, end), last = rt::learningRate(schedule, options.steps - 1, end);
    std::string rates = rate == last ? fmt::format("is {:.4g}", rate) : fmt::format("goes on, to {:.4g}", last);
    fmt::print(stderr,
               "espalier: note: the run has {} and {}.total_steps is {}; from step {} on, the learning rate {}\n",
               rt::counted(options.steps, "step"), key, end, end + 1, rates);
  };
  note("lr_schedule", settings.learning_rate());
  for (const rt::pb::LearningRate &group : settings.rate_groups())
    if (group.total_steps() != settings.learning_rate().total_steps())
      note("grouped_lr_schedule", group);
}

/// Warns if there are more threads than cores.
void noteThreads(const rt::RunOptions &options, int hostRanks) {
  int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (options.threads > cores)
    fmt::print(stderr,
               "espalier: note: --threads {} on each of {} are {} threads for {}, which slows them; leave --threads "
               "out for {}\n",
               options.threads, rt::counted(hostRanks, "rank"), int64_t(options.threads) * hostRanks,
               rt::counted(cores, "core"), rt::threadsPerRank(0, hostRanks));
}

/// Describes the whole run for --json.
nlohmann::ordered_json describe(const RunArguments &arguments, const rt::pb::Plan &plan, const rt::RunResult &result) {
  auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  const std::filesystem::path &folder = arguments.options.checkpoint;
  std::string checkpoint = folder.empty() ? "" : rt::latestCheckpoint(folder);
  nlohmann::ordered_json json = {{"schema", 1},
                                 {"plan", arguments.plan},
                                 {"model", plan.model()},
                                 {"ranks", rt::Mesh(plan.mesh()).ranks()},
                                 {"steps", result.steps.size()}};
  json["last"] = nullptr;
  if (!result.steps.empty())
    json["last"] = nlohmann::ordered_json::parse(metricsLine(result.steps.back()));
  double seconds = medianSeconds(result.steps);
  json["median_step_seconds"] = number(seconds > 0 ? seconds : std::nan(""));
  json["predicted_step_seconds"] =
      number(plan.predicted_step_seconds() > 0 ? plan.predicted_step_seconds() : std::nan(""));
  json["evaluations"] = nlohmann::ordered_json::array();
  for (const rt::EvaluationRecord &evaluation : result.evaluations)
    json["evaluations"].push_back(nlohmann::ordered_json::parse(metricsLine(evaluation)));
  auto textOrNull = [](const std::string &text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  json["checkpoint"] = textOrNull(checkpoint);
  json["stopped_by"] = textOrNull(result.stopSignal ? rt::signalName(result.stopSignal) : "");
  json["divergence"] = textOrNull(result.divergence);
  return json;
}

} // namespace

void requirePlaces(const RunArguments &arguments, const std::string &target) {
  const rt::RunOptions &options = arguments.options;
  checkFiles(arguments);
  std::error_code error;
  const std::filesystem::path &events = options.tensorboard;
  if (std::string fault = events.empty() ? "" : rt::writeFault(rt::presentFolder(events) / "file"); !fault.empty())
    throw rt::PlanError(
        fmt::format("--tensorboard {}: cannot be written: {}; name a folder that can", events.string(), fault));
  bool isPipe = std::filesystem::exists(options.metrics, error) && !is_regular_file(options.metrics, error);
  std::string fault = options.metrics.empty() || isPipe ? "" : rt::writeFault(options.metrics);
  if (!fault.empty())
    throw rt::PlanError(fmt::format("{}: cannot be written: {}", options.metrics.string(), fault));
  rt::RunOptions placed = options;
  chooseRendezvous(arguments.comm, placed);
  if (!options.prometheus.empty() && !placed.topology->isProcessPerRank()) // else only the process of rank 0 listens
    rt::PrometheusEndpoint().open(options.prometheus, options.prometheusTokenFile);
  requireDevice(arguments.device, target.empty() ? "cpu" : target);
}

int runPlanFile(RunArguments &arguments) {
  std::string topology, steps;
  bool printsJson = false;
  std::optional<rt::Program> prepared;
  arguments.options.keepGradients = !arguments.dumpGradients.empty();
  arguments.options.keepParameters = !arguments.dumpParameters.empty();
  arguments.options.keepSteps = arguments.json || !arguments.report.empty();
  arguments.options.nonFinite = arguments.allowsNan ? rt::NonFinite::Accepted : rt::NonFinite::Refused;
  chooseRendezvous(arguments.comm, arguments.options);
  arguments.options.resumeCommand = resumeLine(*arguments.options.topology);
  rt::guardStartup(arguments.options, [&] {
    rt::OwnedPlan read = readTrainingPlan(arguments);
    rt::pb::Plan &plan = read.plan;
    if (arguments.savesHf) {
      requireHfNames(plan);
      arguments.options.onSave = saveHf;
    }
    steps = rt::isForEvaluation(plan.settings()) ? "" : ", " + chooseSteps(arguments, plan.settings());
    topology = chooseComm(arguments.comm, plan, arguments.plan, arguments.options);
    printsJson = arguments.json && arguments.options.log;
    arguments.options.log &= !arguments.quiet;
    if (arguments.options.log)
      printNote(read);
    int hostRanks = arguments.options.hostRanks(rt::Mesh(plan.mesh()).ranks());
    if (!arguments.quiet)
      noteThreads(arguments.options, hostRanks);
    if (arguments.options.log && !rt::isForEvaluation(plan.settings()))
      noteScheduleEnd(arguments.options, plan.settings());
    arguments.options.threads = rt::threadsPerRank(arguments.options.threads, hostRanks);
    chooseDevice(arguments.device, plan, arguments.plan);
    prepared.emplace(std::move(plan), arguments.options.threads);
  });
  arguments.options.log &= !arguments.json;
  const rt::Program &program = *prepared;
  std::string level = program.backend().level();
  if (arguments.options.log)
    fmt::print("{}: {}, {} for {}{}\n{}", arguments.plan, rt::counted(program.mesh().ranks(), "rank"),
               rt::counted(program.plan().kernels_size(), "kernel"), level.empty() ? "no processor" : level, steps,
               topology);
  std::fflush(stdout); // the first step may take long
  rt::stopOnSignals();
  std::signal(SIGPIPE, SIG_IGN); // a closed standard output is handled at each write
  rt::RunResult result = rt::runPlan(program, arguments.options);
  int64_t last = result.steps.empty() ? 0 : result.steps.back().step;
  if (!arguments.dumpGradients.empty())
    dump(arguments.dumpGradients, result.gradients, last);
  if (!arguments.dumpParameters.empty())
    dump(arguments.dumpParameters, result.parameters, last);
  RunSite site = siteOf(program, arguments.options);
  if (arguments.options.log && arguments.device != "emulated") {
    std::string line = driftLine(program.plan(), result, site);
    fmt::print("{}{}", line, line.empty() ? "" : "\n");
  }
  if (!arguments.report.empty() && (!result.steps.empty() || !result.evaluations.empty())) { // not on other processes
    bool hasTrace = !arguments.options.trace.empty() && !result.steps.empty();
    nlohmann::ordered_json sections =
        runSections(hasTrace ? arguments.options.trace.string() : "", program.plan(), result, site.isCalibrated);
    for (const nlohmann::ordered_json &section : planSections(arguments.plan, program.plan()))
      sections.push_back(section);
    writeReport(arguments.report, fmt::format("A run of {}", program.plan().model()), arguments.plan, sections);
  }
  if (printsJson)
    fmt::print("{}\n", describe(arguments, program.plan(), result).dump(2));
  if (!result.divergence.empty()) {
    printError("espalier", rt::divergenceSentence(result, arguments.options, program.plan().settings()));
    return Failed;
  }
  return result.stopSignal ? 128 + result.stopSignal : int(Success);
}

namespace {

void addDataOptions(const Verb &run, rt::RunOptions &options) {
  rt::DataOptions &data = options.data;
  run.option("--data", data.words,
             "a text file, PREFIX of PREFIX.bin and .idx, or mock; PATH PATH ... or WEIGHT PATH WEIGHT PATH ... blends "
             "several; default: the plan's");
  run.option("--split", data.split, "weights of training, validation and test; default: the plan's, or 969,30,1");
  run.option("--eod-token", data.eodToken, "id of the token that ends a document").range(0, 2147483647);
  run.flag("--eod-mask-loss", data.eodMaskLoss, "no loss where the input is the end of a document");
  run.flag("--reset-position-ids", data.resetPositionIds, "positions restart behind the end of a document");
  run.choice<rt::SampleOrder>(
      "--dataloader-type", options.order, {{"single", rt::SampleOrder::single}, {"cyclic", rt::SampleOrder::cyclic}},
      "single: every epoch in one order; cyclic: each in another, as Megatron's random sampler");
}

} // namespace

void addRunOptions(const Verb &run, RunArguments &arguments) {
  rt::RunOptions &options = arguments.options;
  options.log = true;
  options.stopSignal = rt::stopSignal;
  addDataOptions(run, options);
  run.option("--device", arguments.device, "cpu, cuda or emulated (a GPU in software, for tests); default: the plan's")
      .oneOf({"cpu", "cuda", "emulated"});
  arguments.steps = run.option("--steps", options.steps,
                               "optimizer steps in total; default: the plan's lr_schedule.total_steps, or 1")
                        .range(1, mostSteps);
  run.option("--metrics", options.metrics, "write a JSON line per step here");
  run.flag("-q,--quiet", arguments.quiet, "print warnings and errors only; with --json also the object at the end");
  run.option("--log-every", options.logEvery,
             "steps between log lines; default: 1, and on a terminal one progress line in place of them")
      .range(1, mostSteps);
  run.option("--tensorboard", options.tensorboard, "write an event file with losses and speeds into this folder");
  Option prometheus =
      run.option("--prometheus", options.prometheus,
                 "answer http://HOST:PORT/metrics with the state of the run; PORT alone: for this machine only");
  run.option("--prometheus-token-file", options.prometheusTokenFile,
             "its first line is the token that scrapes must send; needed if other machines reach HOST")
      .needs(prometheus);
  Option load =
      run.option("--load", options.load,
                 "weights to start from: a checkpoint, a folder of transformers or of Megatron; default: the plan's "
                 "load_checkpoint");
  run.flag("--allow-nan", arguments.allowsNan, "load weights that are NaN or infinite, too");
  Option checkpoint = run.option("--checkpoint", options.checkpoint,
                                 "folder of the checkpoints; of a plan for evaluation, where its weights are");
  run.option("--tokenizer", options.tokenizer,
             "file or folder of the tokenizer, which checkpoints keep; default: that of the data or of the weights")
      .needs(checkpoint);
  run.option("--save-every", options.saveEvery, "steps between checkpoints; always at the end")
      .range(0, mostSteps)
      .needs(checkpoint);
  run.choice<std::optional<rt::SaveMode>>(
         "--save", options.save, {{"background", rt::SaveMode::background}, {"sync", rt::SaveMode::sync}},
         "background: checkpoints are copied to host memory and written while training goes on; sync: training waits; "
         "default: background if memory holds the copy")
      .needs(checkpoint);
  run.flag("--save-hf", arguments.savesHf, "write a folder of transformers, hf-STEP, beside each checkpoint")
      .needs(checkpoint);
  run.option("--keep", options.keep, "checkpoints that stay, the newest ones; default: all")
      .range(1, mostSteps)
      .needs(checkpoint);
  run.option("--max-unsaved", options.maxUnsaved,
             "checkpoints in a row that cannot be written, after which the run ends; default: 3")
      .range(1, mostSteps)
      .needs(checkpoint);
  Option onDivergence =
      run.choice<rt::OnDivergence>(
             "--on-divergence", options.onDivergence,
             {{"stop", rt::OnDivergence::stop}, {"rollback", rt::OnDivergence::rollback}},
             "stop (default), or rollback: load the last checkpoint, skip the data read since, and go on")
          .needs(checkpoint);
  run.option("--max-rollbacks", options.maxRollbacks, "rollbacks after which a run that diverges ends; default: 3")
      .range(1, mostSteps)
      .needs(onDivergence);
  run.flag("--resume", options.resume, "continue from the latest checkpoint").excludes(load);
  run.flag("--accept-changes", options.acceptChanges,
           "resume though batch, seed, data, types, learning rate, dropout or optimizer are other ones");
  run.option("--threads", options.threads, "threads per rank; default: cores / ranks").range(1, 1024);
  addCommOptions(run, arguments.comm);
  run.option("--status", options.status, "write here who runs where, as JSON, once all ranks have met");
  run.option("--trace", options.trace,
             "write the last step as it was run here: a text for chrome://tracing, in the tracks of `plan --trace`");
  run.option("--report", arguments.report,
             "write a report of the run here as HTML: losses, speed, memory; the step of --trace");
  run.option("--compare-every", options.compareEvery,
             "steps of a window in which the ranks' compute times are compared; a rank that is 15 % slower than the "
             "median of its stage in 3 windows is named; 0: never; default: 20, or 0 if ranks share cores")
      .range(0, mostSteps);
  run.option("--failure-report", options.failureReport, "write here, as JSON, which rank failed, where and why");
  run.option("--failure-timeout", options.failureSeconds,
             "seconds within which all processes of all hosts have ended after one failed; default: 5")
      .range(1.0, 3600.0);
  run.option("--stall-timeout", options.stallSeconds,
             "seconds after which a run ends in which no rank goes on; 0: never; default: 60, or 20 median steps if "
             "they are longer")
      .range(0.0, 1e6);
  run.option("--eval-every", options.evalEvery, "steps between evaluations on held-out data").range(0, mostSteps);
  arguments.evaluation = run.group("evaluations");
  arguments.evaluation.choice<rt::Split>(
      "--eval-split", options.evalSplit,
      {{"train", rt::Split::train}, {"valid", rt::Split::valid}, {"test", rt::Split::test}},
      "what evaluations read: train, valid (default) or test");
  arguments.evaluation
      .option("--eval-batches", options.evalBatches,
              "micro-batches per replica of an evaluation; default: 8, and the whole split where the plan is for it")
      .range(1, mostSteps);
  run.option("--dump-gradients", arguments.dumpGradients,
             "write the unsharded gradients of each step here, as safetensors");
  run.option("--dump-parameters", arguments.dumpParameters,
             "write the unsharded parameters after each step here, as safetensors");
  run.flag("--json", arguments.json, "print one JSON object about the whole run at its end, in place of the log");
}

namespace {

int runAttempt(RunArguments &arguments, const rt::Attempt &attempt) {
  arguments.plan = attempt.plan;
  rt::apply(attempt, arguments.options);
  return runPlanFile(arguments);
}

/// Supervises an elastic run on this host, or, in a process that an elastic run has started, runs the attempt's plan.
int runElastically(RunArguments &arguments) {
  if (std::optional<rt::Attempt> attempt = rt::attemptOfProcess())
    return runAttempt(arguments, *attempt);
  RunArguments given = arguments;
  rt::RunOptions &options = arguments.options;
  rt::pb::Plan plan = readTrainingPlan(arguments).plan;
  if (rt::isForEvaluation(plan.settings()))
    throw rt::PlanError(
        fmt::format("--elastic is for a run that trains, and {} is a plan of run_mode eval", arguments.plan));
  chooseRendezvous(arguments.comm, options);
  chooseComm(arguments.comm, plan, arguments.plan, options);
  if (options.topology->isProcessPerRank() || !options.topology->isOneHost())
    throw rt::PlanError(
        "--elastic: a launcher started this process, and MPI, srun and torchrun end all processes with a "
        "lost one; start the run by `espalier launch --hosts FILE -- run X.plan --elastic`, or on one "
        "host by --processes");
  if (options.comm != rt::Comm::shm)
    throw rt::PlanError("--elastic: the ranks are threads of one process, which a failure ends as a whole; give "
                        "--processes");
  int ranks = rt::Mesh(plan.mesh()).ranks();
  std::vector<rt::ElasticPlan> plans = rt::readElasticPlans(arguments.plan);
  for (const rt::ElasticPlan &other : plans)
    rt::readSignedPlan(other.file, arguments.requiresSigner);
  given.options.opened = rt::openTrainingSamples(plan, options); // all plans read the same samples
  return rt::runElastic({.limits = arguments.elastic,
                         .plans = std::move(plans),
                         .hosts = {{"this host", ranks, {}}},
                         .isCuda = plan.target() != "cpu" && !arguments.comm.sharesDevices,
                         .checkpoint = options.checkpoint,
                         .report = options.failureReport,
                         .resume = options.resume,
                         .answering = {},
                         .runAttempt = [&](const rt::Attempt &attempt) { return runAttempt(given, attempt); }});
}

/// Adds --elastic and its limits.
void addElasticOptions(const Verb &run, RunArguments &arguments) {
  Option elastic = run.flag("--elastic", arguments.isElastic,
                            "after lost ranks, go on from the last checkpoint with a plan for those that are left, one "
                            "of X.RANKS.plan beside X.plan (compile --elastic-hosts)")
                       .needs(run.find("--checkpoint"))
                       .needs(run.find("--save-every"))
                       .excludes(run.find("--json"));
  run.option("--min-ranks", arguments.elastic.minRanks, "the run ends if fewer ranks are left; default: 1")
      .range(1, 1 << 30)
      .needs(elastic);
  run.option("--max-restarts", arguments.elastic.maxRestarts, "failures after which the run goes on; default: 3")
      .range(0, 1 << 30)
      .needs(elastic);
}

} // namespace

void addRunArguments(const Verb &run, RunArguments &arguments) {
  run.option("plan", arguments.plan, "the .plan file").required();
  addSignerOption(run, arguments.requiresSigner);
  addRunOptions(run, arguments);
  addElasticOptions(run, arguments);
}

void addRunCommand(const Verb &app) {
  Verb run = app.verb("run", "Train by a plan, ranks as threads or processes");
  auto arguments = std::make_shared<RunArguments>();
  addRunArguments(run, *arguments);
  run.action([arguments] { return arguments->isElastic ? runElastically(*arguments) : runPlanFile(*arguments); });
}

} // namespace espalier
