// Checks a problem before a search, and a complete plan.
#include "planner/check.h"
#include "planner/model/stage.h"
#include "planner/price.h"

#include <fmt/format.h>
#include <type_traits>

namespace espalier::planner {

namespace {

using Faults = std::vector<std::string>;

void checkMachine(const Machine &machine, Faults &faults) {
  auto wantPositive = [&](double value, const char *name) {
    if (!(value > 0))
      faults.push_back(fmt::format("machine {} must be positive", name));
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

void addFindings(const Pins &pins, const Problem &problem, Faults &faults) {
  for (const Finding &finding : check(pins, limitsOf(problem)))
    faults.push_back(finding.reason);
}

/// Returns pins of all fields of a plan.
Pins pinsOf(const Problem &problem, const Plan &plan) {
  Pins pins;
  visitFields([&](const char *, const char *, auto pin, auto field) {
    if constexpr (!std::is_null_pointer_v<decltype(field)>)
      pins.*pin = plan.*field;
  });
  const auto &pinned = problem.pins.stageLayers;
  if (!plan.stages.empty()) {
    pins.stageLayers.emplace();
    for (const StagePlan &stage : plan.stages)
      pins.stageLayers->push_back(stage.layers);
  } else if (pinned && static_cast<int>(pinned->size()) == plan.pp * chunksOf(plan.schedule, plan.virtualStages)) {
    pins.stageLayers = pinned;
  }
  return pins;
}

/// Each stage begins where the stage before it ends.
void checkStages(const Plan &plan, Faults &faults) {
  int next = 0;
  for (const StagePlan &stage : plan.stages) {
    if (stage.firstLayer != next || stage.recompute.size() != static_cast<size_t>(stage.layers))
      faults.push_back(fmt::format("stage at layer {} does not continue the one before it", stage.firstLayer));
    next = stage.firstLayer + stage.layers;
  }
}

} // namespace

std::vector<std::string> checkProblem(const Problem &problem) {
  Faults faults;
  checkMachine(problem.machine, faults);
  if (problem.globalBatch < 1)
    faults.push_back("the global batch must be at least 1");
  if (problem.layerCount() < 1)
    faults.push_back("the model has no layers");
  addFindings(problem.pins, problem, faults);
  return faults;
}

std::vector<std::string> structuralViolations(const Problem &problem, const Plan &plan) {
  Faults faults;
  addFindings(pinsOf(problem, plan), problem, faults);
  checkStages(plan, faults);
  return faults;
}

std::vector<std::string> violations(const Problem &problem, const Plan &plan) {
  Faults faults = structuralViolations(problem, plan);
  if (faults.empty() && !buildCostTable(problem, plan).isProfiled)
    faults.push_back("the model was not profiled for this combination of axes");
  return faults;
}

} // namespace espalier::planner
