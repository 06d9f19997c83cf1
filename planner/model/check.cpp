// Validates the input problem before a search, and lists the constraints that a plan violates.
#include "planner/model/stage.h"
#include "planner/price.h"

#include <algorithm>

namespace espalier::planner {

namespace {

using Faults = std::vector<std::string>;

std::string number(int64_t value) { return std::to_string(value); }

void checkMachine(const Machine &machine, Faults &faults) {
  auto wantPositive = [&](double value, const char *name) {
    if (!(value > 0))
      faults.push_back(std::string("machine ") + name + " must be positive");
  };
  wantPositive(machine.hosts, "hosts");
  wantPositive(machine.devicesPerHost, "devices per host");
  wantPositive(machine.memoryBytes, "memory");
  wantPositive(machine.peakFlops, "peak FLOP/s");
  wantPositive(machine.memoryBytesPerSecond, "memory bandwidth");
  wantPositive(machine.matmulEfficiency, "matrix product efficiency");
  if (machine.devicesPerHost > 1)
    wantPositive(machine.link.bytesPerSecond, "link bandwidth (there are several devices per host)");
  if (machine.hosts > 1)
    wantPositive(machine.network.bytesPerSecond, "network bandwidth (there are several hosts)");
  if (machine.canOffload()) {
    wantPositive(machine.host.bytes, "host memory (there is a link to it)");
    wantPositive(machine.host.devicesPerLink, "devices per link to host memory");
  }
}

void checkPinnedOffload(const Pins &pins, const Machine &machine, Faults &faults) {
  bool offloadsParameters = pins.offloadParameters.value_or(false);
  if ((pins.offloadOptimizer.value_or(false) || pins.offloadActivations.value_or(false) || offloadsParameters) &&
      !machine.canOffload())
    faults.push_back("offloading is pinned, but machine " + machine.name + " has no link to host memory");
  if (offloadsParameters && (pins.zero.value_or(3) != 3 || !pins.offloadOptimizer.value_or(true)))
    faults.push_back("parameters are pinned to be offloaded, but that takes ZeRO 3 with the optimizer offloaded");
}

void checkPinnedMesh(const Pins &pins, int devices, Faults &faults) {
  int64_t product = 1;
  bool allPinned = true;
  const std::pair<const std::optional<int> &, const char *> axes[] = {
      {pins.dp, "dp"}, {pins.tp, "tp"}, {pins.pp, "pp"}, {pins.cp, "cp"}, {pins.ep, "ep"}};
  for (const auto &[pin, name] : axes) {
    if (pin && (*pin < 1 || *pin > std::max(1, devices)))
      faults.push_back(std::string("pinned ") + name + " (" + number(*pin) + ") must lie between 1 and the " +
                       number(devices) + " devices");
    allPinned = allPinned && pin.has_value();
    product *= std::clamp(pin.value_or(1), 1, 1 << 20);
  }
  if (devices > 0 && (allPinned ? product != devices : devices % product != 0))
    faults.push_back("the pinned axes multiply to " + number(product) + ", which does not " +
                     (allPinned ? "equal" : "divide") + " the " + number(devices) + " devices");
}

void checkPinnedStages(const Pins &pins, int layersOfModel, Faults &faults) {
  if (!pins.stageLayers)
    return;
  int sum = 0, least = 0;
  for (int layers : *pins.stageLayers) {
    sum += layers;
    least = std::min(least, layers);
  }
  if (least < 0)
    faults.push_back("a pinned stage holds " + number(least) + " layers");
  if (sum != layersOfModel)
    faults.push_back("the pinned stages hold " + number(sum) + " layers, the model has " + number(layersOfModel));
  size_t chunks = static_cast<size_t>(std::max(1, pins.pp.value_or(1))) * std::max(1, pins.virtualStages.value_or(1));
  if (pins.pp && pins.stageLayers->size() % chunks != 0)
    faults.push_back("pp is pinned to " + number(*pins.pp) + ", the pinned stages are " +
                     std::to_string(pins.stageLayers->size()));
}

} // namespace

std::vector<std::string> checkProblem(const Problem &problem) {
  Faults faults;
  checkMachine(problem.machine, faults);
  if (problem.globalBatch < 1)
    faults.push_back("the global batch must be at least 1");
  if (problem.layerCount() < 1)
    faults.push_back("the model has no layers");
  checkPinnedOffload(problem.pins, problem.machine, faults);
  checkPinnedMesh(problem.pins, problem.machine.devices(), faults);
  checkPinnedStages(problem.pins, problem.layerCount(), faults);
  return faults;
}

namespace {

const char *axisName(Axis axis) { return meshAxes[static_cast<int>(axis)]; }

int axisSize(const Plan &plan, Axis axis) { return *axisMembers(plan)[static_cast<int>(axis)]; }

void checkAxes(const Problem &problem, const Plan &plan, Faults &faults) {
  for (Axis axis : {Axis::Cp, Axis::Ep, Axis::Tp}) {
    bool splittable = false;
    for (const Divisibility &limit : problem.limits)
      splittable = splittable || limit.axis == axis;
    if (axisSize(plan, axis) > 1 && !splittable)
      faults.push_back(std::string("nothing in the model can be split over ") + axisName(axis));
  }
  for (const Divisibility &limit : problem.limits) {
    int outer = limit.onlySequenceParallel ? plan.cp : limit.timesTensorRanks ? plan.tp : 1;
    int64_t size = static_cast<int64_t>(axisSize(plan, limit.axis)) * limit.factor * outer;
    if (axisSize(plan, limit.axis) == 1 || (limit.onlySequenceParallel && !plan.sequenceParallel))
      continue;
    if (limit.value % size != 0)
      faults.push_back(limit.name + " (" + number(limit.value) + ") does not divide by " +
                       (limit.factor > 1 ? number(limit.factor) + " * " : "") +
                       (outer > 1 ? (limit.timesTensorRanks ? "tp (" : "cp (") + number(outer) + ") * " : "") +
                       axisName(limit.axis) + " (" + number(axisSize(plan, limit.axis)) + ")");
  }
}

void checkStages(const Problem &problem, const Plan &plan, Faults &faults) {
  size_t wanted = static_cast<size_t>(plan.pp) * chunksOf(plan.schedule, plan.virtualStages);
  if (plan.stages.empty())
    return;
  if (plan.stages.size() != wanted) {
    faults.push_back("the plan lists " + number(plan.stages.size()) + " stages, wanted " + number(wanted));
    return;
  }
  int next = 0;
  for (const StagePlan &stage : plan.stages) {
    if (stage.firstLayer != next || stage.layers < 0 || stage.recompute.size() != static_cast<size_t>(stage.layers))
      faults.push_back("stage at layer " + number(stage.firstLayer) + " does not continue the one before it");
    next = stage.firstLayer + stage.layers;
  }
  if (next != problem.layerCount())
    faults.push_back("the stages hold " + number(next) + " layers, the model has " + number(problem.layerCount()));
}

} // namespace

std::vector<std::string> structuralViolations(const Problem &problem, const Plan &plan) {
  Faults faults;
  if (std::min({plan.dp, plan.tp, plan.pp, plan.cp, plan.ep}) < 1 || plan.microBatchSize < 1 || plan.microBatches < 1) {
    faults.push_back("every axis, the micro-batch size and the number of micro-batches must be at least 1");
    return faults;
  }
  int devices = problem.machine.devices();
  if (plan.ranks() != devices)
    faults.push_back("dp * tp * pp * cp * ep is " + number(plan.ranks()) + ", the machine has " + number(devices) +
                     " devices");
  if (plan.globalBatch() != problem.globalBatch)
    faults.push_back(std::string("micro-batch size * micro-batches * dp") + (plan.ep > 1 ? " * ep" : "") + " is " +
                     number(plan.globalBatch()) + ", the global batch is " + number(problem.globalBatch));
  checkAxes(problem, plan, faults);
  if (plan.sequenceParallel && plan.tp == 1)
    faults.push_back("sequence parallelism needs tp > 1");
  if (plan.zero < 0 || plan.zero > 3)
    faults.push_back("the ZeRO stage is " + number(plan.zero) + ", wanted 0 to 3");
  int chunks = plan.pp * chunksOf(plan.schedule, plan.virtualStages);
  const auto &pinned = problem.pins.stageLayers;
  bool placed = !plan.stages.empty() ||
                (pinned && static_cast<int>(pinned->size()) == chunks); // the user pinned some chunks without layers
  if (leastLayers(problem, plan) > problem.layerCount() && !(placed && chunks > plan.pp))
    faults.push_back(number(chunks) + " stages for " + number(problem.layerCount()) + " layers");
  std::string schedule =
      whyNotSchedulable(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages);
  if (!schedule.empty())
    faults.push_back(schedule);
  if (plan.offloads() && !problem.machine.canOffload())
    faults.push_back("nothing can be offloaded: machine " + problem.machine.name + " has no link to host memory");
  if (plan.offloadParameters && (plan.zero != 3 || !plan.offloadOptimizer))
    faults.push_back("parameters are offloaded under ZeRO 3 only, with the optimizer");
  checkStages(problem, plan, faults);
  return faults;
}

std::vector<std::string> violations(const Problem &problem, const Plan &plan) {
  Faults faults = structuralViolations(problem, plan);
  if (faults.empty() && !buildCostTable(problem, plan).isProfiled)
    faults.push_back("the model was not profiled for this combination of axes");
  return faults;
}

} // namespace espalier::planner
