#include "planner/model/simplicity.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::planner {

namespace {

// Returns the parts of `techniques` that a config has, as words.
std::vector<std::string> techniquesOf(const ParallelConfig &config) {
  const std::pair<bool, const char *> techniques[] = {{config.tp > 1, "tensor parallelism"},
                                                      {config.pp > 1, "a pipeline"},
                                                      {config.cp > 1, "context parallelism"},
                                                      {config.ep > 1, "expert parallelism"},
                                                      {config.zero > 1, "sharded parameters or gradients"},
                                                      {config.offloadOptimizer, "an offloaded optimizer"},
                                                      {config.offloadActivations, "offloaded activations"},
                                                      {config.offloadParameters, "offloaded parameters"}};
  std::vector<std::string> words;
  for (const auto &[has, word] : techniques)
    if (has)
      words.emplace_back(word);
  if (config.pp > kFewStages)
    words.push_back(fmt::format("{} stages", config.pp));
  return words;
}

} // namespace

std::vector<std::string> complexitiesOf(const PricedPlan &plan) {
  std::vector<std::string> words = techniquesOf(plan.plan);
  const Prediction &prediction = plan.prediction;
  if (prediction.bubbleShare > kSmallBubble)
    words.push_back(fmt::format("a bubble of {:.0f} %", 100 * prediction.bubbleShare));
  if (prediction.peakBytes > kFullMemory * prediction.memoryLimitBytes)
    words.emplace_back("a full memory");
  return words;
}

Simplicity simplicityOf(const ParallelConfig &config, const Machine &machine) {
  Simplicity simplicity;
  simplicity.techniques = static_cast<int>(techniquesOf(config).size());
  simplicity.contextRanks = config.cp;
  simplicity.splitsTensorsOverHosts = config.tp > machine.devicesPerHost;
  simplicity.zero = config.zero;
  simplicity.sharding = config.zero > 1 ? config.zero : 0;
  simplicity.isHybrid = config.zeroReplicas() > 1;
  simplicity.offloads = config.offloadOptimizer + config.offloadActivations + config.offloadParameters;
  simplicity.hasOtherSchedule = config.pp > 1 && config.schedule != Schedule::OneFOneB;
  simplicity.recomputes = config.fullLayers > 0 || config.recompute.value_or(Recompute::None) != Recompute::None;
  return simplicity;
}

Simplicity simplicityOf(const PricedPlan &plan, const Machine &machine) {
  Simplicity simplicity = simplicityOf(static_cast<const ParallelConfig &>(plan.plan), machine);
  simplicity.techniques = static_cast<int>(complexitiesOf(plan).size());
  simplicity.recomputes = std::ranges::any_of(plan.plan.stages, [](const StagePlan &stage) {
    return std::ranges::any_of(stage.recompute, [](Recompute kept) { return kept != Recompute::None; });
  });
  return simplicity;
}

int familyOf(const ParallelConfig &config) {
  int family = 0;
  for (bool has : {config.tp > 1, config.pp > 1, config.cp > 1, config.ep > 1, config.zero == 3, config.offloads()})
    family = 2 * family + has;
  return family;
}

} // namespace espalier::planner
