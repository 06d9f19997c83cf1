#include "runtime/train/expert_loads.h"

#include "runtime/checkpoint/agree.h"
#include "runtime/counters.h"
#include "runtime/executor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>

namespace espalier::rt {

namespace {

constexpr size_t digits = 8; ///< hexadecimal, of a count in a message
constexpr size_t messageCounts = (Agreement::messageBytes - 1) / digits;

/// Returns the buffers of counters in the subprogram, by the names of their values.
std::map<std::string, pb::Buffer> countersOf(const pb::Plan &plan, const pb::Subprogram &subprogram, uint32_t region) {
  std::map<std::string, pb::Buffer> found;
  auto visit = [&](const pb::Buffer &buffer) {
    const std::string &name = plan.values(static_cast<int>(buffer.value())).name();
    std::string_view own = std::string_view(name).substr(name.rfind('.') + 1);
    if (buffer.region() == region && (own.starts_with(chosenCounter) || own.starts_with(droppedCounter)))
      found.emplace(own, buffer);
  };
  for (const pb::Instruction &instruction : subprogram.instructions()) {
    std::ranges::for_each(instruction.launch().buffers(), visit);
    std::ranges::for_each(instruction.call().buffers(), visit);
  }
  return found;
}

} // namespace

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
  const pb::Plan &plan = program.plan();
  std::vector<std::tuple<int32_t, int, int>> calls; // layer, stage, and index in the stage
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    for (int call = 0; call < plan.stages(stage).calls_size(); ++call)
      calls.emplace_back(plan.stages(stage).calls(call).layer(), stage, call);
  std::ranges::sort(calls);
  for (auto [layer, stage, call] : calls)
    addCall(plan, stage, call);
}

void ExpertCounters::addCall(const pb::Plan &plan, int stage, int index) {
  const pb::Call &call = plan.stages(stage).calls(index);
  std::optional<uint32_t> region = findRegion(plan, "cache");
  auto role = std::ranges::find(plan.roles(), "forward") - plan.roles().begin();
  uint32_t program = region && role < call.programs_size() ? call.programs(static_cast<int>(role)) : 0;
  if (program == 0)
    return;
  std::map<std::string, size_t> layerOf; // by the number behind a counter's name
  for (const auto &[name, buffer] : countersOf(plan, plan.subprograms(static_cast<int>(program) - 1), *region)) {
    bool isOfChoices = name.starts_with(chosenCounter);
    const pb::Value &value = plan.values(static_cast<int>(buffer.value()));
    auto [layer, isNew] =
        layerOf.emplace(name.substr((isOfChoices ? chosenCounter : droppedCounter).size()), layers.size());
    if (isNew)
      layers.push_back({.layer = call.name(), .chosen = {}});
    if (isOfChoices)
      layers[layer->second].chosen.resize(value.elements());
    bool isHere = stage == executor.rankProgram().stage;
    counters[static_cast<size_t>(stage)].push_back(
        {layer->second, isOfChoices, value.elements(), value.partial(),
         isHere ? executor.address(static_cast<uint32_t>(index), buffer) : 0});
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
  for (size_t first = 0; first < longest; first += messageCounts) {
    std::string text;
    for (size_t i = first; i < std::min(first + messageCounts, mine.size()); ++i)
      text += fmt::format("{:0{}x}", mine[i], digits);
    std::vector<std::string> all = agreement.tell(text);
    for (size_t rank = 0; rank < all.size(); ++rank)
      for (size_t i = 0; i < all[rank].size() / digits; ++i) {
        uint32_t count = 0;
        const char *from = all[rank].data() + i * digits;
        std::from_chars(from, from + digits, count, 16);
        sums[static_cast<size_t>(mesh.stage(static_cast<int>(rank)))].at(first + i) += count;
      }
  }
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
