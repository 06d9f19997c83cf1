// All faults of a problem at once, before anything is searched.
#include "planner/search.h"

#include <algorithm>

namespace espalier::planner {

std::vector<std::string> checkProblem(const Problem &problem) {
  std::vector<std::string> faults;
  const Machine &machine = problem.machine;
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
  if (problem.globalBatch < 1)
    faults.push_back("the global batch must be at least 1");
  if (problem.layerCount() < 1)
    faults.push_back("the model has no layers");
  const Pins &pins = problem.pins;
  int64_t product = 1;
  bool allPinned = true;
  bool offloadsParameters = pins.offloadParameters.value_or(false);
  if ((pins.offloadOptimizer.value_or(false) || pins.offloadActivations.value_or(false) || offloadsParameters) &&
      !machine.canOffload())
    faults.push_back("offloading is pinned, but machine " + machine.name + " has no link to host memory");
  if (offloadsParameters && (pins.zero.value_or(3) != 3 || !pins.offloadOptimizer.value_or(true)))
    faults.push_back("parameters are pinned to be offloaded, but that takes ZeRO 3 with the optimizer offloaded");
  const std::pair<const std::optional<int> &, const char *> axes[] = {
      {pins.dp, "dp"}, {pins.tp, "tp"}, {pins.pp, "pp"}, {pins.cp, "cp"}, {pins.ep, "ep"}};
  for (const auto &[pin, name] : axes) {
    if (pin && (*pin < 1 || *pin > std::max(1, machine.devices())))
      faults.push_back(std::string("pinned ") + name + " (" + std::to_string(*pin) + ") must lie between 1 and the " +
                       std::to_string(machine.devices()) + " devices");
    allPinned = allPinned && pin.has_value();
    product *= std::clamp(pin.value_or(1), 1, 1 << 20);
  }
  if (machine.devices() > 0 && (allPinned ? product != machine.devices() : machine.devices() % product != 0))
    faults.push_back("the pinned axes multiply to " + std::to_string(product) + ", which does not " +
                     (allPinned ? "equal" : "divide") + " the " + std::to_string(machine.devices()) + " devices");
  if (pins.stageLayers) {
    int sum = 0, least = 0;
    for (int layers : *pins.stageLayers) {
      sum += layers;
      least = std::min(least, layers);
    }
    if (least < 0)
      faults.push_back("a pinned stage holds " + std::to_string(least) + " layers");
    if (sum != problem.layerCount())
      faults.push_back("the pinned stages hold " + std::to_string(sum) + " layers, the model has " +
                       std::to_string(problem.layerCount()));
    size_t chunks = static_cast<size_t>(std::max(1, pins.pp.value_or(1))) * std::max(1, pins.virtualStages.value_or(1));
    if (pins.pp && pins.stageLayers->size() % chunks != 0)
      faults.push_back("pp is pinned to " + std::to_string(*pins.pp) + ", the pinned stages are " +
                       std::to_string(pins.stageLayers->size()));
  }
  return faults;
}

} // namespace espalier::planner
