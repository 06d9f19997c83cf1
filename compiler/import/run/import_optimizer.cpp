// Imports the optimizer and its hyperparameters. format/optimizers.h has the table of optimizers.
#include "compiler/import/run/run_reader.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace espalier {
namespace {

/// Names of MindFormers, Megatron and PyTorch.
const std::map<std::string, rt::pb::Optimizer> typeNames = {
    {"AdamW", rt::pb::ADAMW},
    {"AdamWeightDecay", rt::pb::ADAMW},
    {"FusedAdamWeightDecay", rt::pb::ADAMW},
    {"FP32StateAdamWeightDecay", rt::pb::ADAMW},
    {"adamw", rt::pb::ADAMW},
    {"SGD", rt::pb::SGD},
    {"Momentum", rt::pb::SGD},
    {"sgd", rt::pb::SGD},
    {"Muon", rt::pb::MUON},
    {"muon", rt::pb::MUON},
};

/// Imports beta1 and beta2 from their own keys or from a list. The key with the higher priority wins.
void importBetas(const RunReader &reader) {
  OptimizerConfig &optimizer = reader.config().optimizer;
  const std::string listKey = reader.has("optimizer.adamw_betas") ? "optimizer.adamw_betas" : "optimizer.betas";
  const YamlNode *list = reader.find(listKey);
  bool isPair = list && list->items.size() == 2 && yamlNumber(*list->items[0]) && yamlNumber(*list->items[1]);
  if (list && !isPair)
    reader.error(listKey, fmt::format("{} must be two numbers such as [0.9, 0.95]", listKey));
  const std::pair<std::string, double *> betas[] = {{"optimizer.beta1", &optimizer.beta1},
                                                    {"optimizer.beta2", &optimizer.beta2}};
  for (size_t i = 0; i < std::size(betas); ++i) {
    const auto &[key, beta] = betas[i];
    bool isListed = isPair && reader.nearness(listKey) > reader.nearness(key);
    *beta = isListed ? *yamlNumber(*list->items[i]) : reader.number(key).value_or(*beta);
    if (isListed)
      reader.report(key, KeyAction::Accepted, "the nearer betas win");
    if (*beta < 0 || *beta >= 1)
      reader.error(isListed ? listKey : key, fmt::format("{} is {}, must be in [0, 1)", key, *beta));
  }
}

void importType(const RunReader &reader) {
  std::optional<std::string> type = reader.text("optimizer.type");
  if (!type)
    return;
  if (auto found = typeNames.find(*type); found != typeNames.end()) {
    reader.config().optimizer.type = found->second;
    return;
  }
  std::vector<std::string> known;
  for (const auto &[name, number] : typeNames)
    known.push_back(name);
  reader.error("optimizer.type", fmt::format("no optimizer '{}', there are {}{}", *type, fmt::join(known, ", "),
                                             didYouMean(*type, known)));
}

/// Imports momentum and its Nesterov form.
void importMomentum(const RunReader &reader) {
  OptimizerConfig &optimizer = reader.config().optimizer;
  bool isMuon = optimizer.type == rt::pb::MUON;
  optimizer.momentum = reader.number("optimizer.momentum").value_or(isMuon ? 0.95 : 0);
  const char *nesterovKey = reader.has("optimizer.nesterov") ? "optimizer.nesterov" : "optimizer.use_nesterov";
  optimizer.nesterov = reader.flag(nesterovKey).value_or(isMuon);
  if (optimizer.momentum < 0 || optimizer.momentum >= 1)
    reader.error("optimizer.momentum", fmt::format("optimizer.momentum is {}, must be in [0, 1)", optimizer.momentum));
  if (optimizer.nesterov && optimizer.momentum == 0)
    reader.error(nesterovKey, "nesterov needs optimizer.momentum above 0");
  if (double dampening = reader.number("optimizer.dampening").value_or(0); dampening != 0)
    reader.refuse("optimizer.dampening",
                  fmt::format("dampening of gradients is not built; dampening: {} → 0", dampening));
}

void importMuon(const RunReader &reader) {
  OptimizerConfig &optimizer = reader.config().optimizer;
  optimizer.newtonSchulzSteps = reader.integer("optimizer.ns_steps").value_or(optimizer.newtonSchulzSteps);
  if (optimizer.newtonSchulzSteps < 1 || optimizer.newtonSchulzSteps > 100)
    reader.error("optimizer.ns_steps",
                 fmt::format("optimizer.ns_steps is {}, must be 1 to 100", optimizer.newtonSchulzSteps));
  const std::vector<std::string> modes = {"spectral", "shape_scaling", "unit_rms_norm"};
  optimizer.scaleMode = reader.text("optimizer.scale_mode").value_or(optimizer.scaleMode);
  if (std::find(modes.begin(), modes.end(), optimizer.scaleMode) == modes.end())
    reader.error("optimizer.scale_mode", fmt::format("no scale_mode '{}', there are {}{}", optimizer.scaleMode,
                                                     fmt::join(modes, ", "), didYouMean(optimizer.scaleMode, modes)));
  // MindFormers' matched_adamw_rms is the factor of the mode `spectral`.
  const char *rmsKey = "optimizer.matched_adamw_rms", *factorKey = "optimizer.extra_scale_factor";
  if (optimizer.scaleMode != "spectral") {
    optimizer.scaleFactor = 1;
    reader.report(rmsKey, KeyAction::Accepted, "belongs to scale_mode spectral");
  }
  const char *key = optimizer.scaleMode == "spectral" && !reader.has(factorKey) ? rmsKey : factorKey;
  optimizer.scaleFactor = reader.number(key).value_or(optimizer.scaleFactor);
  if (optimizer.scaleFactor <= 0)
    reader.error(key, fmt::format("{} is {}, must be above 0", key, optimizer.scaleFactor));
}

/// Reports the keys of other optimizers.
void reportOthers(const RunReader &reader) {
  const rt::OptimizerRow &row = rt::optimizerRow(reader.config().optimizer.type);
  std::string reason = fmt::format("{} does not have it", row.name);
  auto leave = [&](std::initializer_list<const char *> keys) {
    for (const char *key : keys)
      reader.report(fmt::format("optimizer.{}", key), KeyAction::Accepted, reason);
  };
  if (row.number == rt::pb::SGD)
    leave({"beta1", "beta2", "betas", "eps"});
  else if (row.number == rt::pb::ADAMW)
    leave({"momentum", "nesterov", "use_nesterov", "dampening"});
  if (row.number != rt::pb::MUON)
    leave({"ns_steps", "scale_mode", "matched_adamw_rms", "extra_scale_factor", "adamw_betas", "adamw_eps"});
}

/// Imports the limit of the gradient norm relative to that of earlier steps.
void importSpikes(const RunReader &reader) {
  constexpr int64_t mostNorms = 4096; // a checkpoint holds them as text
  OptimizerConfig &optimizer = reader.config().optimizer;
  const char *factorKey = "runner_wrapper.skip_spike_factor", *windowKey = "runner_wrapper.skip_spike_window";
  optimizer.skipSpikeFactor = reader.number(factorKey).value_or(0);
  if (double factor = optimizer.skipSpikeFactor; factor != 0 && !(factor > 1 && factor <= 1e6))
    reader.error(factorKey, fmt::format("{} is {}, must be above 1 and at most 1e6, or 0", factorKey, factor));
  optimizer.skipSpikeWindow = reader.integer(windowKey).value_or(optimizer.skipSpikeWindow);
  if (optimizer.skipSpikeWindow > mostNorms)
    reader.error(windowKey, fmt::format("{} is {}, must be 1 to {}", windowKey, optimizer.skipSpikeWindow, mostNorms));
  if (reader.has(windowKey) && optimizer.skipSpikeFactor == 0)
    reader.report(windowKey, KeyAction::Accepted, "belongs to skip_spike_factor, which is not set");
}

void importClipping(const RunReader &reader) {
  OptimizerConfig &optimizer = reader.config().optimizer;
  optimizer.clip = reader.flag("runner_wrapper.use_clip_grad").value_or(false);
  optimizer.maxGradNorm = reader.number("runner_wrapper.max_grad_norm").value_or(1.0);
  optimizer.maxSkippedSteps = reader.integer("runner_wrapper.max_skipped_steps").value_or(optimizer.maxSkippedSteps);
  importSpikes(reader);
  if (optimizer.maxGradNorm <= 0)
    reader.error("runner_wrapper.max_grad_norm",
                 fmt::format("runner_wrapper.max_grad_norm is {}, must be above 0", optimizer.maxGradNorm));
}

} // namespace

void importOptimizer(const RunReader &reader) {
  OptimizerConfig &optimizer = reader.config().optimizer;
  importType(reader);
  importBetas(reader);
  const char *epsilonKey = reader.has("optimizer.adamw_eps") ? "optimizer.adamw_eps" : "optimizer.eps";
  optimizer.epsilon = reader.number(epsilonKey).value_or(optimizer.epsilon);
  optimizer.weightDecay = reader.number("optimizer.weight_decay").value_or(optimizer.weightDecay);
  if (optimizer.weightDecay < 0)
    reader.error("optimizer.weight_decay",
                 fmt::format("optimizer.weight_decay is {}, must be at least 0", optimizer.weightDecay));
  if (optimizer.epsilon <= 0)
    reader.error(epsilonKey, fmt::format("{} is {}, must be above 0", epsilonKey, optimizer.epsilon));
  if (optimizer.type != rt::pb::ADAMW)
    importMomentum(reader);
  if (optimizer.type == rt::pb::MUON)
    importMuon(reader);
  reportOthers(reader);
  importClipping(reader);
}

} // namespace espalier
