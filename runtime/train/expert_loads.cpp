#include "runtime/train/expert_loads.h"

#include "format/counters.h"
#include "runtime/executor.h"
#include "runtime/train/layer_counters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace espalier::rt {

int64_t ExpertLoad::choices() const { return std::accumulate(chosen.begin(), chosen.end(), int64_t(0)); }

double ExpertLoad::mostOverMean() const {
  int64_t all = choices();
  return all == 0 ? 1
                  : static_cast<double>(std::ranges::max(chosen)) * static_cast<double>(chosen.size()) /
                        static_cast<double>(all);
}

double ExpertLoads::mostOverMean() const {
  double most = 1;
  for (const ExpertLoad &layer : layers)
    most = std::max(most, layer.mostOverMean());
  return most;
}

double ExpertLoads::droppedShare() const {
  int64_t choices = 0, dropped = 0;
  for (const ExpertLoad &layer : layers) {
    choices += layer.choices();
    dropped += layer.dropped;
  }
  return choices == 0 ? 0 : static_cast<double>(dropped) / static_cast<double>(choices);
}

ExpertCounters::ExpertCounters(const Program &program, Executor &executor)
    : mesh(program.mesh()), executor(executor), counters(static_cast<size_t>(program.plan().stages_size())) {
  std::map<std::string, size_t> layerOf; // by the layer's name and the number behind a counter's name
  for (const LayerCounter &found : findCounters(program.plan(), {chosenCounter, droppedCounter})) {
    bool isOfChoices = found.name.starts_with(chosenCounter);
    size_t prefix = (isOfChoices ? chosenCounter : droppedCounter).size();
    auto [layer, isNew] = layerOf.emplace(found.layer + "." + found.name.substr(prefix), layers.size());
    if (isNew)
      layers.push_back({.layer = found.layer, .chosen = {}});
    if (isOfChoices)
      layers[layer->second].chosen.resize(found.elements);
    bool isHere = found.stage == executor.rankProgram().stage;
    counters[static_cast<size_t>(found.stage)].push_back({layer->second, isOfChoices, found.elements, found.partial,
                                                          isHere ? executor.address(found.call, found.buffer) : 0});
  }
}

/// Reads and clears this rank's counters. A counter that several ranks hold alike counts on the first of them.
std::vector<uint32_t> ExpertCounters::read() {
  const RankProgram &own = executor.rankProgram();
  std::vector<uint32_t> counts;
  for (const Counter &counter : counters[static_cast<size_t>(own.stage)]) {
    std::vector<float> values(counter.elements);
    executor.device().copyOut(values.data(), counter.address, values.size() * sizeof(float));
    executor.device().fill(counter.address, 0, values.size() * sizeof(float));
    bool isFirst = mesh.index(own.rank, allAxes & ~(counter.partial | PP)) == 0;
    for (float value : values)
      counts.push_back(isFirst ? static_cast<uint32_t>(std::llround(std::min(value, 0x1p31F))) : 0);
  }
  return counts;
}

std::vector<ExpertLoad> ExpertCounters::take(Agreement &agreement) {
  std::vector<uint32_t> mine = read();
  std::vector<std::vector<int64_t>> sums; // by stage
  size_t longest = 0;
  for (const std::vector<Counter> &stage : counters) {
    size_t elements = 0;
    for (const Counter &counter : stage)
      elements += counter.elements;
    sums.emplace_back(elements);
    longest = std::max(longest, elements);
  }
  std::vector<std::vector<uint32_t>> all = exchangeNumbers(agreement, mine, longest);
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (size_t i = 0; i < all[rank].size(); ++i)
      sums[static_cast<size_t>(mesh.stage(static_cast<int>(rank)))].at(i) += all[rank][i];
  std::vector<ExpertLoad> loads = layers;
  for (size_t stage = 0; stage < counters.size(); ++stage) {
    auto next = sums[stage].begin();
    for (const Counter &counter : counters[stage]) {
      auto end = next + static_cast<int64_t>(counter.elements);
      if (counter.isOfChoices)
        std::copy(next, end, loads[counter.layer].chosen.begin());
      else
        loads[counter.layer].dropped = std::accumulate(next, end, int64_t(0));
      next = end;
    }
  }
  return loads;
}

} // namespace espalier::rt
