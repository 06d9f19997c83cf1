// Relaxations are tried by searching again with one thing changed, from the cheapest change on.
#include "planner/diagnose.h"

#include "planner/split_chunks.h"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace espalier::planner {

namespace {

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < 1e8 ? "%.3g GB" : "%.1f GB", bytes / 1e9);
  return text;
}

// The share of what a rank may use that it takes, on the device or in its host's memory, whichever is tighter.
double memoryShare(const Machine &machine, double bytes, double hostBytes) {
  double onHost = hostBytes > 0 ? hostBytes / machine.hostShareBytes() : 0;
  return std::max(bytes / machine.memoryBytes, onHost);
}

// Layers spread evenly; each stage keeps what fits, or what needs least. `share` is the memoryShare of the fullest.
Plan leastPlan(const Problem &problem, const Plan &axes, const std::shared_ptr<ScheduleCache> &schedules,
               double *share) {
  StageOptions options(problem, axes, schedules);
  LaidStages laid =
      layStages(problem, options, problem.pins.stageLayers ? *problem.pins.stageLayers : evenChunks(problem, axes));
  Plan plan = axes;
  plan.stages = std::move(laid.stages);
  *share = 0;
  for (int stage = 0; stage < axes.pp; ++stage)
    *share = std::max(*share, memoryShare(problem.machine, laid.bytes[stage], laid.hostBytes[stage]));
  return plan;
}

// The plan that needs the least of what a rank may use. What the layers need at least, spread evenly, tells which are
// worth laying out.
Plan nearestPlan(const Problem &problem, const std::vector<SizedPlan> &axes) {
  std::vector<std::pair<double, size_t>> order; // of equal ones the first
  for (size_t i = 0; i < axes.size(); ++i)
    order.emplace_back(axes[i].leastBytes, i);
  std::sort(order.begin(), order.end());
  double least = std::numeric_limits<double>::infinity();
  Plan nearest;
  auto schedules = std::make_shared<ScheduleCache>();
  for (const auto &[bytes, i] : order) {
    if (memoryShare(problem.machine, bytes, /*hostBytes=*/0) >= least)
      break;
    double share = 0;
    Plan plan = leastPlan(problem, axes[i].plan, schedules, &share);
    if (share < least) {
      least = share;
      nearest = std::move(plan);
    }
  }
  return nearest;
}

// The stage with the most bytes, on the device or (`onHost`) in host memory.
int fullest(const Prediction &prediction, bool onHost) {
  int stage = 0;
  auto bytes = [&](int i) { return onHost ? prediction.memory[i].host() : prediction.memory[i].total(); };
  for (int i = 1; i < static_cast<int>(prediction.memory.size()); ++i)
    if (bytes(i) > bytes(stage))
      stage = i;
  return stage;
}

std::string largestClass(const StageMemory &memory) {
  const std::pair<double, const char *> classes[] = {
      {memory.parameters, "parameters"},   {memory.gradients, "gradients"}, {memory.optimizer, "optimizer state"},
      {memory.activations, "activations"}, {memory.workspace, "workspace"}, {memory.communication, "buffers"},
      {memory.reserved, "reserved"}};
  const auto *largest = classes;
  for (const auto &entry : classes)
    if (entry.first > largest->first)
      largest = &entry;
  return std::string(largest->second) + " " + gigabytes(largest->first);
}

// Searches the changed problem; when it fits, reports what the best plan needs.
void tryChange(const Problem &problem, SearchOptions options, const std::string &change, SearchResult &result) {
  options.diagnose = false;
  options.alternatives = 0;
  SearchResult changed = search(problem, options);
  if (!changed.plans.empty())
    result.relaxations.push_back({change, changed.plans.front().prediction.peakBytes});
}

template <typename Pin>
void tryUnpin(const Problem &problem, const SearchOptions &options, Pin Pins::*pin, const char *name,
              SearchResult &result) {
  if (!(problem.pins.*pin))
    return;
  Problem changed = problem;
  (changed.pins.*pin).reset();
  tryChange(changed, options, std::string("leave ") + name + " to the planner", result);
}

// What may move to the host under plans that the executor could run otherwise; both kinds only where one is too little.
void tryOffload(const Problem &problem, SearchOptions options, SearchResult &result) {
  if (options.all || !problem.machine.canOffload())
    return;
  options.all = true;
  Problem changed = problem;
  Pins &pins = changed.pins;
  pins.cp = pins.ep = pins.virtualStages = 1;
  pins.zero = pins.zero.value_or(1);
  pins.schedule = pins.schedule.value_or(Schedule::OneFOneB);
  auto attempt = [&](bool optimizer, bool activations, const char *change) {
    pins.offloadOptimizer = optimizer;
    pins.offloadActivations = activations;
    tryChange(changed, options, change, result);
  };
  size_t before = result.relaxations.size();
  attempt(true, false, "offload_optimizer=true (--all)");
  attempt(false, true, "offload_activations=true (--all)");
  if (result.relaxations.size() == before)
    attempt(true, true, "offload_optimizer=true, offload_activations=true (--all)");
}

void tryAll(const Problem &problem, const SearchOptions &options, SearchResult &result) {
  const Pins &pins = problem.pins;
  tryUnpin(problem, options, &Pins::recompute, "recompute", result);
  tryUnpin(problem, options, &Pins::microBatchSize, "the micro-batch size", result);
  tryUnpin(problem, options, &Pins::microBatches, "the number of micro-batches", result);
  tryUnpin(problem, options, &Pins::zero, "the ZeRO stage", result);
  tryUnpin(problem, options, &Pins::sequenceParallel, "sequence parallelism", result);
  tryUnpin(problem, options, &Pins::stageLayers, "the layers of each stage", result);
  tryUnpin(problem, options, &Pins::offloadOptimizer, "where optimizer state lives", result);
  tryUnpin(problem, options, &Pins::offloadActivations, "where activations wait", result);
  tryOffload(problem, options, result);
  if (pins.dp || pins.tp || pins.pp || pins.cp || pins.ep) {
    Problem changed = problem;
    changed.pins.dp = changed.pins.tp = changed.pins.pp = changed.pins.cp = changed.pins.ep = {};
    changed.pins.microBatchSize = changed.pins.microBatches = {};
    changed.pins.stageLayers = {};
    tryChange(changed, options, "leave the axes to the planner", result);
  }
  if (!options.all) {
    SearchOptions all = options;
    all.all = true;
    tryChange(problem, all, "allow plans that cannot be executed yet (--all)", result);
  }
  for (int times = 2; times <= 64; times *= 2) {
    Problem changed = problem;
    changed.machine.hosts *= times;
    size_t before = result.relaxations.size();
    tryChange(changed, options, "devices=" + std::to_string(changed.machine.devices()), result);
    if (result.relaxations.size() > before)
      break;
  }
}

// The nearest global batches below and above for which there are plans: multiples of a number of replicas that the
// devices and the model allow.
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
      SearchOptions quiet = options;
      quiet.diagnose = false;
      quiet.alternatives = 0;
      if (!search(changed, quiet).plans.empty())
        (batch < problem.globalBatch ? below : above) = batch;
    }
  }
  for (int64_t batch : {below, above}) {
    Problem changed = problem;
    changed.globalBatch = batch;
    if (batch > 0)
      tryChange(changed, options, "global_batch=" + std::to_string(batch), result);
  }
}

std::string bindingLimit(const Machine &machine, const Prediction &prediction) {
  bool onHost = prediction.hostPeakBytes > 0 && prediction.hostPeakBytes / prediction.hostLimitBytes >
                                                    prediction.peakBytes / prediction.memoryLimitBytes;
  int stage = fullest(prediction, onHost);
  const StageMemory &memory = prediction.memory[stage];
  std::string text = std::string(onHost ? "host memory" : "memory") + ": the plan that needs least takes " +
                     gigabytes(onHost ? memory.host() : memory.total()) + " per rank of stage " +
                     std::to_string(stage) + ", have ";
  if (onHost)
    return text + gigabytes(prediction.hostLimitBytes) + ", the share of one of " +
           std::to_string(machine.devicesPerHost) + " devices in " + gigabytes(machine.host.bytes);
  return text + gigabytes(machine.memoryBytes) + "; most of it is " + largestClass(memory);
}

} // namespace

void diagnose(const Problem &problem, const SearchOptions &options, const std::vector<SizedPlan> &axes,
              SearchResult &result) {
  if (axes.empty()) {
    if (options.relax)
      nameBatches(problem, options, result);
    result.binding = "no combination of axes divides the model, the global batch (" +
                     std::to_string(problem.globalBatch) + ") and the " + std::to_string(problem.machine.devices()) +
                     " devices under the given pins";
    if (options.relax)
      tryAll(problem, options, result);
    return;
  }
  result.nearest = pricePlan(problem, nearestPlan(problem, axes));
  result.binding = bindingLimit(problem.machine, result.nearest.prediction);
  if (options.relax)
    tryAll(problem, options, result);
}

} // namespace espalier::planner
