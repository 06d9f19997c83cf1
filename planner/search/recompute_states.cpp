#include "planner/search/recompute_states.h"

#include <algorithm>
#include <ranges>

namespace espalier::planner {

void ChunkUse::add(const PerRecompute<ChunkUse> &perLayer, const PerRecompute<int> &layers) {
  for (Recompute recompute : kRecomputes) {
    seconds.add(perLayer[recompute].seconds, layers[recompute]);
    savedBytes += layers[recompute] * perLayer[recompute].savedBytes;
  }
}

void RecomputeStates::reset(double peakBytes) {
  states.assign(1, {});
  states[0].peakBytes = peakBytes;
  uses.assign(chunks, {});
}

void RecomputeStates::clear() {
  states.clear();
  uses.clear();
}

void RecomputeStates::add(const RecomputeState &state, const std::vector<ChunkUse> &added) {
  states.push_back(state);
  uses.insert(uses.end(), added.begin(), added.end());
}

namespace {

bool takesNoLonger(const ChunkSeconds &a, const ChunkSeconds &b) {
  return a.forward <= b.forward && a.backward <= b.backward && a.weight <= b.weight;
}

} // namespace

// State `one` is not slower overall.
bool RecomputeStates::dominates(uint32_t one, uint32_t other, const StateOrder &order) const {
  if (order.keepsMemory &&
      (states[one].peakBytes > states[other].peakBytes || states[one].bufferBytes > states[other].bufferBytes))
    return false;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const ChunkUse &a = use(one, chunk), &b = use(other, chunk);
    if ((order.byTime && order.byAction && !takesNoLonger(a.seconds, b.seconds)) ||
        (order.keepsMemory && a.savedBytes > b.savedBytes))
      return false;
  }
  return true;
}

void RecomputeStates::dropDominated(const StateOrder &by) {
  std::vector<std::pair<double, uint32_t>> order;
  for (uint32_t i = 0; i < states.size(); ++i)
    order.emplace_back(by.byTime ? states[i].total : bytesInFlightOf(i), i);
  std::ranges::sort(order);
  std::vector<uint32_t> left;
  for (const auto &[key, i] : order)
    if (std::ranges::none_of(std::views::reverse(left), [&](uint32_t other) { return dominates(other, i, by); }))
      left.push_back(i);
  retain(left);
}

bool RecomputeStates::thin(size_t most) {
  if (states.size() <= most)
    return false;
  std::vector<std::pair<double, uint32_t>> order;
  for (uint32_t i = 0; i < states.size(); ++i)
    order.emplace_back(bytesInFlightOf(i), i);
  std::ranges::sort(order);
  std::vector<uint32_t> left = {order[0].second};
  for (size_t part = 0, parts = most - 1; part < parts; ++part) {
    auto first = order.begin() + part * order.size() / parts, last = order.begin() + (part + 1) * order.size() / parts;
    uint32_t fastest =
        std::ranges::min_element(first, last, {}, [&](const auto &one) { return states[one.second].total; })->second;
    if (fastest != left[0])
      left.push_back(fastest);
  }
  retain(left);
  return true;
}

void RecomputeStates::retain(const std::vector<uint32_t> &left) {
  std::vector<RecomputeState> someStates;
  std::vector<ChunkUse> someUses;
  for (uint32_t i : left) {
    someStates.push_back(states[i]);
    someUses.insert(someUses.end(), uses.begin() + i * chunks, uses.begin() + (i + 1) * chunks);
  }
  states = std::move(someStates);
  uses = std::move(someUses);
}

} // namespace espalier::planner
