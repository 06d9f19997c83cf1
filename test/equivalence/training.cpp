#include "test/equivalence/training.h"

#include "compiler/choose/choose_plan.h"
#include "planner/model/schedule.h"
#include "runtime/run/run.h"
#include "runtime/train/learning_rate.h"
#include "test/equivalence/train_ranks.h"
#include "test/host_options.h"

#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>

namespace espalier {

RunConfig equivalenceRun(const std::string &model, const std::vector<std::string> &sets) {
  static std::map<std::pair<std::string, std::vector<std::string>>, RunConfig> known;
  if (auto found = known.find({model, sets}); found != known.end())
    return found->second;
  ImportOptions options;
  options.sets = sets;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs", ESPALIER_SOURCE_DIR "/test/equivalence"};
  ImportedRun imported = importRun(std::string(ESPALIER_SOURCE_DIR "/test/equivalence/") + model + ".yaml", options);
  EXPECT_TRUE(imported.ok()) << imported.diagnostics.render();
  if (imported.ok())
    known.emplace(std::pair(model, sets), imported.config);
  return std::move(imported.config);
}

planner::Plan planOf(const RunConfig &run, const SplitCase &split) {
  planner::Plan plan;
  plan.dp = split.dp;
  plan.tp = split.tp;
  plan.pp = split.pp;
  plan.cp = split.cp;
  plan.ep = split.ep;
  plan.microBatches = split.microBatches;
  plan.microBatchSize = 8 / (split.dp * split.ep * split.microBatches);
  plan.zero = split.zero;
  plan.zeroGroup = split.zeroGroup;
  plan.sequenceParallel = split.sequenceParallel;
  plan.zigzag = split.zigzag;
  plan.splitsExperts = split.splitsExperts;
  plan.expertsOverContext = split.expertsOverContext;
  plan.vocabParallel = split.vocabParallel;
  plan.schedule = split.schedule;
  plan.virtualStages = split.virtualStages;
  plan.keepTensorParallelResults = split.keepCollectives;
  plan.sliceRecomputedInputs = split.sliceInputs;
  int first = 0;
  int chunks = split.pp * planner::chunksOf(split.schedule, split.virtualStages);
  for (int count : split.stageLayers.empty() ? spreadLayers(run.model.layerCount(), chunks) : split.stageLayers) {
    plan.stages.push_back({first, count, std::vector<planner::Recompute>(count, split.recompute)});
    for (int layer = 0; layer < count && !split.layerRecompute.empty(); ++layer)
      plan.stages.back().recompute[layer] = split.layerRecompute[first + layer];
    first += count;
  }
  return plan;
}

std::shared_ptr<const rt::Dataset> equivalenceData(const RunConfig &run) {
  std::filesystem::path text = std::filesystem::path(testing::TempDir()) / fmt::format("text_{}.txt", getpid());
  std::ofstream stream(text, std::ios::binary);
  for (int i = 0; i < 400; ++i)
    stream << "sentence " << i * 7919 % 1000 << " of a text that repeats\n\n";
  stream.close();
  rt::DatasetOptions options;
  options.seqLength = run.model.dims.at("seq");
  options.split = rt::Split::all;
  options.eodToken = static_cast<int32_t>(run.data.has_eod_token() ? run.data.eod_token() : -1);
  options.eodMaskLoss = run.data.eod_mask_loss();
  options.resetPositionIds = run.data.reset_position_ids();
  options.resetAttentionMask = run.resetAttentionMask;
  return rt::openDataset(text.string(), options);
}

TrainingRecord trainCompiled(const RunConfig &run, const planner::Plan &plan, int64_t steps, int threads,
                             const std::string &target, std::shared_ptr<const rt::Dataset> data) {
  mlir::MLIRContext context;
  CompileOptions compilation = hostOptions();
  compilation.target = target;
  std::optional<Compiled> compiled = compileRun(context, run, plan, compilation);
  TrainingRecord record;
  if (!compiled) {
    ADD_FAILURE() << "the plan does not compile";
    return record;
  }
  rt::RunOptions options;
  options.dataset = data ? std::move(data) : equivalenceData(run);
  options.steps = steps;
  options.threads = threads;
  options.keepGradients = true;
  options.logEvery = 1;
  rt::RunResult result = rt::runPlan(rt::Program(std::move(compiled->plan), threads), options);
  for (const rt::StepRecord &step : result.steps) {
    record.losses.push_back(step.loss);
    record.norms.push_back(step.gradNorm);
    record.lossScales.push_back(step.lossScale);
    record.applied.push_back(step.isApplied);
    auto &loads = record.loads.emplace_back();
    for (const rt::ExpertLoad &layer : step.experts.layers) {
      loads[layer.layer] = layer.chosen;
      loads[layer.layer].push_back(layer.dropped);
    }
  }
  for (const rt::Tensors &tensors : result.gradients) {
    auto &entry = record.gradients.emplace_back();
    for (const auto &[name, values] : tensors)
      entry[name].assign(values.begin(), values.end());
  }
  return record;
}

TrainingRecord trainInterpreted(const RunConfig &run, const planner::Plan &plan, int64_t steps,
                                std::shared_ptr<const rt::Dataset> data) {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> model = partitionRun(context, run, plan);
  TrainingRecord record;
  if (!model) {
    ADD_FAILURE() << "the plan does not partition";
    return record;
  }
  if (!data)
    data = equivalenceData(run);
  TrainingInputs inputs;
  inputs.steps = steps;
  inputs.learningRate = [&](int64_t) { return run.schedule.peak(); };
  inputs.sample = [&](int64_t index) {
    rt::Sample sample = data->sample(index % data->sampleCount());
    TrainingSample result;
    result.tokens.assign(sample.tokens.begin(), sample.tokens.end());
    result.labels.assign(sample.labels.begin(), sample.labels.end());
    result.lossWeights.assign(sample.lossWeights.begin(), sample.lossWeights.end());
    result.positions.assign(sample.positions.begin(), sample.positions.end());
    result.visibleFrom.assign(sample.visibleFrom.begin(), sample.visibleFrom.end());
    return result;
  };
  llvm::Expected<std::vector<TrainingStep>> trained = trainRanks(*model, run, plan, inputs);
  if (!trained) {
    ADD_FAILURE() << llvm::toString(trained.takeError());
    return record;
  }
  for (TrainingStep &step : *trained) {
    record.losses.push_back(step.loss);
    record.norms.push_back(step.gradNorm);
    record.gradients.push_back(std::move(step.gradients));
    record.exchanges.push_back(std::move(step.exchanges));
    record.applied.push_back(step.isApplied);
    auto &loads = record.loads.emplace_back();
    for (const auto &[name, counts] : step.counters)
      if (size_t end = name.find(".chosen0"); end != std::string::npos) {
        std::string layer = name.substr(0, end);
        loads[layer].assign(counts.begin(), counts.end());
        auto dropped = step.counters.find(layer + ".dropped0");
        loads[layer].push_back(dropped == step.counters.end() ? 0 : static_cast<int64_t>(dropped->second[0]));
      }
  }
  return record;
}

std::string compareGradients(const std::map<std::string, std::vector<double>> &expected,
                             const std::map<std::string, std::vector<double>> &actual, double relative) {
  double allSquares = 0, allElements = 0;
  for (const auto &[name, values] : expected) {
    for (double value : values)
      allSquares += value * value;
    allElements += values.size();
  }
  std::string faults;
  for (const auto &[name, values] : expected) {
    auto found = actual.find(name);
    if (found == actual.end() || found->second.size() != values.size()) {
      faults += name + " is missing or of another size; ";
      continue;
    }
    double squares = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      squares += values[i] * values[i];
      difference += (values[i] - found->second[i]) * (values[i] - found->second[i]);
    }
    double bound =
        relative * std::sqrt(squares) + 1e-2 * relative * std::sqrt(allSquares * values.size() / allElements);
    if (!(std::sqrt(difference) <= bound))
      faults += fmt::format("{}: |difference| {:.3g} above {:.3g} (|g| {:.3g}); ", name, std::sqrt(difference), bound,
                            std::sqrt(squares));
  }
  if (actual.size() != expected.size())
    faults += fmt::format("{} gradients, expected {}", actual.size(), expected.size());
  return faults;
}

} // namespace espalier
