#include "runtime/train/layer_counters.h"

#include "runtime/checkpoint/agree.h"
#include "runtime/program.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <tuple>

namespace espalier::rt {

namespace {

constexpr size_t digits = 8; ///< hexadecimal, of a number in a message
constexpr size_t messageNumbers = (Agreement::messageBytes - 1) / digits;

/// Returns the buffers of counters in the subprogram, by the names of the counters.
std::map<std::string, pb::Buffer> countersOf(const pb::Plan &plan, const pb::Subprogram &subprogram, uint32_t region,
                                             std::initializer_list<std::string_view> prefixes) {
  std::map<std::string, pb::Buffer> found;
  auto visit = [&](const pb::Buffer &buffer) {
    const std::string &name = plan.values(static_cast<int>(buffer.value())).name();
    std::string_view own = std::string_view(name).substr(name.rfind('.') + 1);
    if (buffer.region() == region &&
        std::ranges::any_of(prefixes, [&](std::string_view prefix) { return own.starts_with(prefix); }))
      found.emplace(own, buffer);
  };
  for (const pb::Instruction &instruction : subprogram.instructions()) {
    std::ranges::for_each(instruction.launch().buffers(), visit);
    std::ranges::for_each(instruction.call().buffers(), visit);
  }
  return found;
}

} // namespace

std::vector<LayerCounter> findCounters(const pb::Plan &plan, std::initializer_list<std::string_view> prefixes) {
  std::optional<uint32_t> region = findRegion(plan, "cache");
  auto role = static_cast<int>(std::ranges::find(plan.roles(), "forward") - plan.roles().begin());
  std::vector<std::tuple<int32_t, int, int>> calls; // layer, stage, and index in the stage
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    for (int call = 0; call < plan.stages(stage).calls_size(); ++call)
      calls.emplace_back(plan.stages(stage).calls(call).layer(), stage, call);
  std::ranges::sort(calls);
  std::vector<LayerCounter> counters;
  for (auto [layer, stage, index] : calls) {
    const pb::Call &call = plan.stages(stage).calls(index);
    uint32_t program = region && role < call.programs_size() ? call.programs(role) : 0;
    if (program == 0)
      continue;
    for (const auto &[name, buffer] :
         countersOf(plan, plan.subprograms(static_cast<int>(program) - 1), *region, prefixes)) {
      const pb::Value &value = plan.values(static_cast<int>(buffer.value()));
      counters.push_back(
          {stage, static_cast<uint32_t>(index), call.name(), name, buffer, value.elements(), value.partial()});
    }
  }
  return counters;
}

std::vector<std::vector<uint32_t>> exchangeNumbers(Agreement &agreement, const std::vector<uint32_t> &mine,
                                                   size_t most) {
  std::vector<std::vector<uint32_t>> numbers;
  for (size_t first = 0; first < most; first += messageNumbers) {
    std::string text;
    for (size_t i = first; i < std::min(first + messageNumbers, mine.size()); ++i)
      text += fmt::format("{:0{}x}", mine[i], digits);
    std::vector<std::string> all = agreement.tell(text);
    numbers.resize(all.size());
    for (size_t rank = 0; rank < all.size(); ++rank)
      for (size_t i = 0; i < all[rank].size() / digits; ++i) {
        const char *from = all[rank].data() + i * digits;
        std::from_chars(from, from + digits, numbers[rank].emplace_back(), 16);
      }
  }
  return numbers;
}

} // namespace espalier::rt
