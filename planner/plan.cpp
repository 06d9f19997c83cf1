#include "planner/plan.h"

#include "planner/model/schedule.h"

#include <type_traits>

namespace espalier::planner {

const char *recomputeName(Recompute recompute) {
  static constexpr const char *names[] = {"none", "selective", "full"};
  return names[static_cast<int>(recompute)];
}

std::optional<Recompute> recomputeNamed(std::string_view name) {
  for (Recompute recompute : kRecomputes)
    if (name == recomputeName(recompute))
      return recompute;
  return std::nullopt;
}

ParallelConfig Pins::config() const {
  ParallelConfig config;
  visitFields([&](const char *, const char *, auto pin, auto field) {
    if constexpr (!std::is_null_pointer_v<decltype(field)>)
      config.*field = (this->*pin).value_or(config.*field);
  });
  return config;
}

Pins Pins::with(const Pins &other) const {
  Pins pins = *this;
  visitFields([&](const char *, const char *, auto pin, auto) {
    if (other.*pin)
      pins.*pin = other.*pin;
  });
  return pins;
}

bool Pins::hold(const Plan &plan) const {
  bool holds = true;
  auto check = [&](const auto &pin, const auto &value) { holds = holds && (!pin || *pin == value); };
  visitFields([&](const char *, const char *, auto pin, auto field) {
    if constexpr (!std::is_null_pointer_v<decltype(field)>)
      check(this->*pin, plan.*field);
  });
  std::vector<int> layers;
  for (const StagePlan &stage : plan.stages) {
    layers.push_back(stage.layers);
    for (Recompute kept : stage.recompute)
      check(recompute, kept);
  }
  check(stageLayers, layers);
  return holds;
}

const char *Capability::whyNot(const ParallelConfig &config) const {
  if (config.zero > 1 && splitsBackward(config.schedule) && !zeroWithWeights)
    return "ZeRO 2 and 3 where weight gradients are actions of their own";
  return config.offloads() && !offloads ? "offloading" : nullptr;
}

const char *Capability::whyNot(const Plan &plan) const {
  for (size_t chunk = 1; chunk + 1 < plan.stages.size(); ++chunk)
    if (plan.stages[chunk].layers == 0 && !emptyInnerChunks)
      return "stages and chunks without layers between others";
  return whyNot(static_cast<const ParallelConfig &>(plan));
}

// Unpinned fields take their defaults, which demand the least of the executor.
const char *Capability::whyNot(const Pins &pins) const {
  Plan plan;
  static_cast<ParallelConfig &>(plan) = pins.config();
  for (int layers : pins.stageLayers.value_or(std::vector<int>()))
    plan.stages.push_back({0, layers, {}});
  return whyNot(plan);
}

} // namespace espalier::planner
