#include "planner/model/simplicity.h"

#include <algorithm>
#include <tuple>

namespace espalier::planner {

Simplicity simplicityOf(const ParallelConfig &config, const Machine &machine, bool recomputes) {
  Simplicity simplicity;
  simplicity.contextRanks = config.cp;
  simplicity.splitsTensorsOverHosts = config.tp > machine.devicesPerHost;
  simplicity.zero = config.zero;
  simplicity.sharding = config.zero > 1 ? config.zero : 0;
  simplicity.isHybrid = config.zeroReplicas() > 1;
  simplicity.offloads = config.offloadOptimizer + config.offloadActivations + config.offloadParameters;
  simplicity.hasOtherSchedule = config.pp > 1 && config.schedule != Schedule::OneFOneB;
  simplicity.recomputes = recomputes;
  for (int ranks : {config.tp, config.pp, config.cp, config.ep})
    simplicity.techniques += ranks > 1;
  simplicity.techniques += (config.zero > 1) + simplicity.offloads;
  return simplicity;
}

Simplicity simplicityOf(const Plan &plan, const Machine &machine) {
  bool recomputes = std::ranges::any_of(plan.stages, [](const StagePlan &stage) {
    return std::ranges::any_of(stage.recompute, [](Recompute kept) { return kept != Recompute::None; });
  });
  return simplicityOf(plan, machine, recomputes);
}

double comparisonError(const ModelError &error, const ParallelConfig &one, const ParallelConfig &other) {
  auto axes = [](const ParallelConfig &config) {
    return std::tuple(config.tp, config.pp, config.cp, config.ep, config.zero == 3);
  };
  if (axes(one) == axes(other))
    return error.comparison;
  auto isUnmeasured = [&](ParallelConfig config) {
    auto sizes = axisMembers(config);
    for (size_t axis = 0; axis < kAxes; ++axis)
      if (error.measured[axis] > 0 && *sizes[axis] > error.measured[axis])
        return true;
    return false;
  };
  double family = std::max(error.comparison, error.family);
  return isUnmeasured(one) || isUnmeasured(other) ? std::max(family, error.unmeasured) : family;
}

int familyOf(const ParallelConfig &config) {
  int family = 0;
  for (bool has : {config.tp > 1, config.pp > 1, config.cp > 1, config.ep > 1, config.zero == 3, config.offloads()})
    family = 2 * family + has;
  return family;
}

} // namespace espalier::planner
