// Finds relaxations by repeated searches with one change each, cheapest first.
#include "planner/search/diagnose.h"

#include "planner/answer/explain.h"
#include "planner/search/stage_options.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string_view>

namespace espalier::planner {

namespace {

// Spreads layers evenly. Each stage keeps what fits, or what needs least. Sets `share` to the fullest stage's
// memoryShare.
Plan leastPlan(const Problem &problem, const ParallelConfig &config, const std::shared_ptr<ScheduleCache> &schedules,
               double *share) {
  StageOptions options(problem, config, schedules);
  LaidStages laid = layStages(options, evenChunks(problem, config));
  Plan plan{config, {}};
  plan.stages = std::move(laid.stages);
  *share = 0;
  for (int stage = 0; stage < config.pp; ++stage)
    *share = std::max(*share, memoryShare(problem.machine, laid.bytes[stage], laid.hostBytes[stage]));
  return plan;
}

// Returns the plan that uses the least share of memory. The evenly spread lower bound tells which configs are worth a
// layout.
Plan nearestPlan(const Problem &problem, const std::vector<SizedConfig> &configs) {
  std::vector<std::pair<double, size_t>> order; // ties keep the order of configs
  for (size_t i = 0; i < configs.size(); ++i)
    order.emplace_back(configs[i].leastBytes, i);
  std::sort(order.begin(), order.end());
  double least = kInfinity;
  Plan nearest;
  auto schedules = std::make_shared<ScheduleCache>();
  for (const auto &[bytes, i] : order) {
    if (memoryShare(problem.machine, bytes, /*hostBytes=*/0) >= least)
      break;
    double share = 0;
    Plan plan = leastPlan(problem, configs[i].config, schedules, &share);
    if (share < least) {
      least = share;
      nearest = std::move(plan);
    }
  }
  return nearest;
}

// Returns the stage with the most bytes, on the device or (`onHost`) in host memory.
int fullest(const Prediction &prediction, bool onHost) {
  auto bytes = [&](const StageMemory &memory) { return onHost ? memory.host() : memory.total(); };
  return static_cast<int>(std::ranges::max_element(prediction.memory, {}, bytes) - prediction.memory.begin());
}

std::string largestClass(const StageMemory &memory) {
  const std::pair<double, const char *> classes[] = {
      {memory.parameters, "parameters"},   {memory.gradients, "gradients"}, {memory.optimizer, "optimizer state"},
      {memory.activations, "activations"}, {memory.workspace, "workspace"}, {memory.communication, "buffers"},
      {memory.reserved, "reserved"}};
  const auto *largest = std::ranges::max_element(classes, {}, &std::pair<double, const char *>::first);
  return fmt::format("{} {}", largest->second, describeBytes(largest->first));
}

// Returns the best plan of the changed problem, if one fits.
std::optional<PricedPlan> bestOf(const Problem &problem, SearchOptions options) {
  options.diagnose = options.simplest = false;
  options.alternatives = 0;
  SearchResult changed = search(problem, options);
  return changed.plans.empty() ? std::nullopt : std::optional(std::move(changed.plans.front()));
}

// Searches the changed problem. If a plan fits, reports the memory of the best one. Returns whether one fits.
bool tryChange(const Problem &problem, const SearchOptions &options, const std::string &change, SearchResult &result) {
  std::optional<PricedPlan> best = bestOf(problem, options);
  if (best)
    result.relaxations.push_back({change, best->prediction.peakBytes});
  return best.has_value();
}

using Names = std::vector<const char *>; ///< as in visitFields()

// Returns the set pins that may be freed, cheapest first. Profiled pins are left out, because they need other terms.
Names freeable(const Pins &pins) {
  Names names;
  visitFields([&](const char *, const char *name, auto pin, auto) {
    if (pins.*pin && !(pins.profiled().*pin))
      names.push_back(name);
  });
  return names;
}

Pins without(Pins pins, const Names &names) {
  visitFields([&](const char *, const char *name, auto pin, auto) {
    if (std::ranges::find(names, std::string_view(name)) != names.end())
      (pins.*pin).reset();
  });
  return pins;
}

} // namespace

std::string leftToPlanner(const std::vector<const char *> &names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + std::string(names[i]);
  return text + " left to the planner";
}

std::vector<FreedPins> freePins(const Problem &problem, const SearchOptions &options) {
  auto bestWithout = [&](const Names &names) {
    Problem changed = problem;
    changed.pins = without(problem.pins, names);
    return bestOf(changed, options);
  };
  Names freed = freeable(problem.pins);
  std::vector<FreedPins> list;
  for (const char *name : freed)
    if (std::optional<PricedPlan> best = bestWithout({name}))
      list.push_back({leftToPlanner({name}), std::move(*best)});
  if (!list.empty() || freed.size() < 2)
    return list;
  std::optional<PricedPlan> best = bestWithout(freed);
  if (!best)
    return list;
  for (size_t i = freed.size(); i-- > 0;) { // pin again where possible, axes first
    Names fewer = freed;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (std::optional<PricedPlan> still = bestWithout(fewer)) {
      freed = std::move(fewer);
      best = std::move(still);
    }
  }
  return {{leftToPlanner(freed), std::move(*best)}};
}

namespace {

// Tries offloading where the executor could run the plan otherwise, or under ZeRO 3. Offloads more only if less is not
// enough.
void tryOffload(const Problem &problem, SearchOptions options, SearchResult &result) {
  if (options.all || !problem.machine.canOffload())
    return;
  options.all = true;
  Problem changed = problem;
  Pins &pins = changed.pins;
  pins.cp = pins.ep = pins.virtualStages = 1;
  bool mayShard = pins.zero.value_or(3) == 3;
  pins.zero = pins.zero.value_or(1);
  pins.schedule = pins.schedule.value_or(Schedule::OneFOneB);
  auto attempt = [&](bool optimizer, bool activations, const char *change) {
    pins.offloadOptimizer = optimizer;
    pins.offloadActivations = activations;
    return tryChange(changed, options, change, result);
  };
  bool isEnough = attempt(true, false, "offload_optimizer=true (--all)");
  isEnough |= attempt(false, true, "offload_activations=true (--all)");
  if (isEnough || attempt(true, true, "offload_optimizer=true, offload_activations=true (--all)") || !mayShard)
    return;
  pins.zero = 3;
  pins.offloadParameters = true;
  if (!attempt(true, false, "zero=3, offload_optimizer=true, offload_parameters=true (--all)"))
    attempt(true, true, "zero=3, offload_optimizer=true, offload_parameters=true, offload_activations=true (--all)");
}

// Doubles the hosts until a plan fits, then reduces them by eighths of the last step. `beside` names the other
// relaxations of the problem.
void tryMoreDevices(const Problem &problem, const SearchOptions &options, const std::string &beside,
                    SearchResult &result) {
  Problem changed = problem;
  auto attempt = [&](int64_t hosts) {
    changed.machine.hosts = static_cast<int>(hosts);
    return tryChange(changed, options, fmt::format("devices={}{}", changed.machine.devices(), beside), result);
  };
  constexpr int64_t growth = 1024, mostDevices = 1000000;
  const int64_t most = std::min(growth * problem.machine.hosts, mostDevices / problem.machine.devicesPerHost);
  for (int64_t below = problem.machine.hosts, above = 2 * below; above <= most; below = above, above *= 2) {
    if (!attempt(above))
      continue;
    Relaxation doubled = result.relaxations.back();
    result.relaxations.pop_back();
    for (int64_t step = std::max<int64_t>(1, (above - below) / 8), hosts = below + step; hosts < above; hosts += step)
      if (attempt(hosts))
        return;
    result.relaxations.push_back(doubled);
    return;
  }
}

// Tries to use the margin that a cluster's limit leaves free. A limit from the user has no margin.
void tryWithoutMargin(const Problem &problem, const SearchOptions &options, SearchResult &result) {
  if (problem.machine.marginBytes <= 0)
    return;
  Problem changed = problem;
  changed.machine.memoryBytes += problem.machine.marginBytes;
  tryChange(changed, options, withoutMargin(changed.machine.memoryBytes), result);
}

void tryAll(const Problem &problem, const SearchOptions &options, SearchResult &result) {
  tryWithoutMargin(problem, options, result);
  for (const FreedPins &freed : freePins(problem, options))
    result.relaxations.push_back({freed.change, freed.best.prediction.peakBytes});
  tryOffload(problem, options, result);
  if (!options.all) {
    SearchOptions all = options;
    all.all = true;
    tryChange(problem, all, "plans that cannot be executed yet (--all)", result);
  }
  tryMoreDevices(problem, options, "", result);
  if (!result.relaxations.empty())
    return;
  Problem changed = problem; // neither the pins nor the devices alone are the cause
  changed.pins = problem.pins.profiled();
  tryMoreDevices(changed, options, ", " + leftToPlanner(freeable(problem.pins)), result);
}

// Names the nearest global batches below and above for which plans exist. They are multiples of a replica count that
// the devices and the model allow.
void nameBatches(const Problem &problem, const SearchOptions &options, SearchResult &result) {
  int64_t devices = problem.machine.devices(), below = 0, above = 0;
  for (int64_t replicas = 1; replicas <= devices; ++replicas) {
    if (devices % replicas != 0 || (problem.pins.dp && *problem.pins.dp != replicas))
      continue;
    int64_t lower = problem.globalBatch / replicas * replicas, upper = lower + replicas;
    for (int64_t batch : {lower, upper}) {
      bool isNearer = batch < problem.globalBatch ? batch > below : above == 0 || batch < above;
      if (batch < 1 || batch == problem.globalBatch || !isNearer)
        continue;
      Problem changed = problem;
      changed.globalBatch = batch;
      changed.pins.dp = static_cast<int>(replicas);
      if (bestOf(changed, options))
        (batch < problem.globalBatch ? below : above) = batch;
    }
  }
  for (int64_t batch : {below, above}) {
    Problem changed = problem;
    changed.globalBatch = batch;
    if (batch > 0)
      tryChange(changed, options, fmt::format("global_batch={}", batch), result);
  }
}

std::string bindingLimit(const Machine &machine, const Prediction &prediction) {
  bool onHost = prediction.hostPeakBytes > 0 && prediction.hostPeakBytes / prediction.hostLimitBytes >
                                                    prediction.peakBytes / prediction.memoryLimitBytes;
  int stage = fullest(prediction, onHost);
  const StageMemory &memory = prediction.memory[stage];
  constexpr const char *pattern = "{}: the plan that needs least takes {} per rank of stage {}, have {}";
  if (onHost)
    return fmt::format(pattern, "host memory", describeBytes(memory.host()), stage,
                       describeBytes(prediction.hostLimitBytes)) +
           fmt::format(", the share of one of {} devices in {}", machine.devicesPerHost,
                       describeBytes(machine.host.bytes));
  return fmt::format(pattern, "memory", describeBytes(memory.total()), stage, describeBytes(machine.memoryBytes)) +
         "; most of it is " + largestClass(memory);
}

} // namespace

void diagnose(const Problem &problem, const SearchOptions &options, const std::vector<SizedConfig> &configs,
              SearchResult &result) {
  if (configs.empty()) {
    if (options.relax)
      nameBatches(problem, options, result);
    result.binding = fmt::format(
        "no combination of axes divides the model, the global batch ({}){} and the {} devices under the given pins",
        problem.globalBatch, problem.smallerBatches.empty() ? "" : ", the smaller batches of its ramp",
        problem.machine.devices());
    if (options.relax)
      tryAll(problem, options, result);
    return;
  }
  result.nearest = pricePlan(problem, nearestPlan(problem, configs));
  result.binding = bindingLimit(problem.machine, result.nearest.prediction);
  if (options.relax)
    tryAll(problem, options, result);
}

} // namespace espalier::planner
