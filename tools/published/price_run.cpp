#include "tools/published/price_run.h"

#include "compiler/import/run/import_run.h"
#include "compiler/import/yaml/config_files.h"
#include "compiler/profile/describe_problem.h"
#include "compiler/profile/profile_model.h"
#include "planner/model/error.h"
#include "planner/search.h"
#include "planner/search/stage_options.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {

namespace {

using planner::Plan;
using planner::PricedPlan;
using planner::Problem;

constexpr double gibibyte = 0x1p30;

/// DeepSpeed assigns the remaining layers to the first stages. If embedding and loss, counted as one layer each, make
/// the layers divisible, it spreads them evenly as usual.
void fillFirstStages(Problem &problem, const Plan &plan) {
  int layers = problem.layerCount(), most = (layers + plan.pp - 1) / plan.pp, last = layers - (plan.pp - 1) * most;
  if (plan.pp < 2 || layers % plan.pp == 0 || (layers + 2) % plan.pp == 0 || last < 1)
    return;
  std::vector<int> counts(plan.pp, most);
  counts.back() = last;
  problem.pins.stageLayers = std::move(counts);
}

/// Prices a plan. If recompute is not published, each stage uses the least recompute that fits, as a user would choose.
PricedPlan priceAsRun(const Problem &problem, const Plan &plan) {
  PricedPlan even = planner::pricePlan(problem, plan);
  if (problem.pins.recompute || even.prediction.fits())
    return even;
  planner::StageOptions options(problem, plan);
  std::vector<int> counts;
  for (const planner::StagePlan &part : even.plan.stages)
    counts.push_back(part.layers);
  Plan kept = plan;
  kept.stages = planner::layStages(options, counts).stages;
  return planner::pricePlan(problem, kept);
}

/// Returns the bytes that a monitor shows: a caching allocator keeps the blocks of the update.
double shownBytes(Problem problem, const Plan &plan, double updateBytes) {
  for (planner::SegmentKind &kind : problem.kinds)
    for (planner::PatternTerms &pattern : kind.patterns) {
      pattern.stepBytes.clear();
      for (planner::ParameterTerm &term : pattern.parameters)
        term.optimizerBytes += term.isFrozen ? 0 : updateBytes;
    }
  return planner::pricePlan(problem, plan).prediction.peakBytes;
}

double measuredSeconds(const PublishedRun &run, const Problem &problem, double flops, double repeated, double peak) {
  if (run.seconds > 0)
    return run.seconds;
  auto samples = static_cast<double>(run.globalBatch);
  if (run.tokensPerSecond > 0)
    return samples * static_cast<double>(problem.tokensPerSample) / (run.tokensPerSecond * problem.machine.devices());
  if (run.mfu > 0)
    return flops / (peak * run.mfu);
  return run.teraflops > 0 ? (run.countsRecompute ? repeated : flops) / (run.teraflops * 1e12) : 0;
}

} // namespace

RunPricer::RunPricer() {
  context.getDiagEngine().registerHandler([](mlir::Diagnostic &) { return mlir::success(); });
  for (const std::string &path : configFolders("run.yaml", {}))
    if (folder.empty() && std::filesystem::exists(path + "/gpt3_175b.yaml"))
      folder = path;
}

const Problem *RunPricer::profile(const PublishedRun &run, const RunConfig &config) {
  const planner::Pins &pins = config.pins;
  std::string key = fmt::format("{} {} {} {} {} {} {} {} {}", run.base, fmt::join(run.sets, " "), run.system,
                                config.cluster.device, pins.tp.value_or(0), pins.sequenceParallel.value_or(false),
                                pins.cp.value_or(0) == 1, pins.ep.value_or(1) > 1, pins.splitsExperts.value_or(true));
  size_t batch = key.find("planner.global_batch="); // not a part of the terms
  key.erase(batch, key.find(' ', batch) - batch);
  auto found = profiles.find(key);
  if (found == profiles.end()) {
    std::optional<Problem> read = profileModel(context, config, "cpu", /*onlyPinned=*/!run.withoutPlan);
    if (!read)
      return nullptr;
    found = profiles.emplace(key, std::move(*read)).first;
  }
  problem = found->second;
  describeRun(config, problem);
  return &problem;
}

PricedRun RunPricer::price(const PublishedRun &run) {
  auto refused = [](const std::string &reason) {
    PricedRun none;
    none.reason = reason;
    return none;
  };
  ImportOptions options;
  options.cluster = run.cluster;
  options.system = run.system;
  options.sets = run.sets;
  options.freeAtBatch = run.globalBatch;
  if (!run.pin.empty())
    options.pins = {{"--pin", run.pin}};
  ImportedRun imported = importRun(folder + "/" + run.base + ".yaml", options);
  if (!imported.ok()) {
    for (const Diagnostic &fault : imported.diagnostics.sorted())
      if (fault.severity == Severity::Error)
        return refused(fault.message);
  }
  const RunConfig &config = imported.config;
  if (!profile(run, config))
    return refused("the model cannot be partitioned");
  double peak = problem.machine.peakFlops, reserved = config.cluster.reservedBytes + config.system.reservedBytes;
  problem.machine.memoryBytes += problem.machine.marginBytes; // a run may use the margin
  PricedRun result;
  PricedPlan priced;
  if (run.withoutPlan) {
    problem.pins = {};
    // The publisher's planner took the fastest plan, with a recompute of each op and stages of any length.
    problem.preferSimple = 0;
    problem.software.recomputeScope = planner::RecomputeScope::Layer;
    problem.software.hasEvenStages = false;
    problem.pins.zero = 0, problem.pins.cp = 1, problem.pins.sequenceParallel = false;
    planner::SearchResult found = planner::search(problem, {.prove = false, .diagnose = false, .relax = false});
    if (found.plans.empty())
      return refused(found.errors.empty() ? "no plan fits" : found.errors.front());
    priced = found.plans.front();
  }
  for (int64_t size : run.microBatchSizes) {
    Plan plan;
    static_cast<planner::ParallelConfig &>(plan) = problem.pins.config();
    plan.microBatchSize = size;
    plan.sliceRecomputedInputs = config.recompute.recomputeSliceActivation;
    plan.microBatches = run.globalBatch / (size * run.replicas);
    if (run.fillsFirstStages)
      fillFirstStages(problem, plan);
    if (std::vector<std::string> faults = planner::violations(problem, plan); !faults.empty())
      return refused(faults.front());
    if (run.isAnalytic) // the formula covers only the layers
      problem.embed = problem.head = -1;
    PricedPlan one = priceAsRun(problem, plan);
    if (size > run.microBatchSizes.front() && !one.prediction.fits())
      continue;
    double seconds = one.prediction.stepSeconds;
    result.leastSeconds = result.leastSeconds > 0 ? std::min(result.leastSeconds, seconds) : seconds;
    result.mostSeconds = std::max(result.mostSeconds, seconds);
    if (priced.plan.stages.empty() || seconds < priced.prediction.stepSeconds)
      priced = std::move(one);
  }
  const planner::StageMemory &first = priced.prediction.memory.front();
  result.plan = priced.plan;
  result.seconds = priced.prediction.stepSeconds;
  result.timeError = priced.prediction.timeError;
  for (size_t i = 0; i < problem.error.content.size(); ++i)
    if (auto content = static_cast<planner::Content>(i); planner::hasContent(problem, priced.plan, content))
      result.contents.emplace_back(planner::contentName(content));
  result.fits = priced.prediction.fits();
  double update = config.system.storage.updateBytes;
  double shown = reserved + (update > 0 ? shownBytes(problem, priced.plan, update)
                                        : priced.prediction.peakBytes); // a monitor shows at most what the device has
  result.gibibytes = (run.outOfMemory ? shown : std::min(shown, problem.machine.memoryBytes + reserved)) / gibibyte;
  if (run.isAnalytic)
    result.gibibytes = (first.parameters + first.gradients + first.optimizer + first.activations) / gibibyte;
  double flops = problem.modelFlops * static_cast<double>(run.globalBatch) / problem.machine.devices();
  result.flops = flops * (problem.pins.recompute == planner::Recompute::Full ? 4.0 / 3 : 1);
  result.measuredSeconds = measuredSeconds(run, problem, flops, result.flops, peak);
  return result;
}

} // namespace espalier
