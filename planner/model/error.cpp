#include "planner/model/error.h"

#include <algorithm>
#include <tuple>

namespace espalier::planner {

const char *contentName(Content content) {
  constexpr const char *names[] = {"experts",       "experts_over_hosts", "context_over_hosts",
                                   "hybrid_shards", "more_devices",       "formats"};
  return names[static_cast<size_t>(content)];
}

bool hasContent(const Problem &problem, const ParallelConfig &config, Content content) {
  const int host = problem.machine.devicesPerHost,
            experts = config.ep * config.tp; // tp varies fastest, then ep, then cp
  switch (content) {
  case Content::Experts:
    return problem.routing.choices > 0;
  case Content::ExpertsOverHosts:
    return config.ep > 1 && experts > host;
  case Content::ContextOverHosts:
    return config.cp > 1 && config.cp * experts > host;
  case Content::HybridShards:
    return config.zeroReplicas() > 1;
  case Content::MoreDevices:
    return problem.error.measuredDevices > 0 && config.ranks() > problem.error.measuredDevices;
  case Content::Format:
    return !problem.matmulFormat.name.empty();
  }
  return false;
}

double timeError(const Problem &problem, const ParallelConfig &config) {
  const ModelError &error = problem.error;
  double largest = error.time;
  for (size_t i = 0; largest > 0 && i < error.content.size(); ++i)
    if (hasContent(problem, config, static_cast<Content>(i)))
      largest = std::max(largest, error.content[i]);
  return largest;
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

} // namespace espalier::planner
