#include "compiler/import/model/rotary_form.h"

#include "compiler/import/model/op_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

namespace espalier {

namespace {

std::string scalingOf(const OpDescription &rope) {
  auto found = rope.strings.find("scaling");
  return found == rope.strings.end() ? "" : found->second;
}

/// Returns by how much YaRN multiplies logits' factors for positions that are `factor` times as far apart.
double yarnMagnitude(double factor, double weight) { return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1; }

/// Scales pairs that turn slowly over the training context and keeps those that turn fast (Peng et al., "YaRN", 2023).
RotaryScaling yarn(const OpDescription &rope, int64_t rotary, double factor) {
  double theta = number(rope, "theta"), context = number(rope, "original_context");
  auto columns = static_cast<double>(rotary);
  auto pairWith = [&](double turns) {
    return columns * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double first = pairWith(number(rope, "beta_fast")), last = pairWith(number(rope, "beta_slow"));
  if (number(rope, "truncate") != 0) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, columns - 1);
  if (first == last)
    last += 0.001;
  double amplitude = number(rope, "attention_factor");
  double some = number(rope, "mscale"), all = number(rope, "mscale_all_dim");
  if (amplitude == 0)
    amplitude =
        some != 0 && all != 0 ? yarnMagnitude(factor, some) / yarnMagnitude(factor, all) : yarnMagnitude(factor, 1);
  return {.factor = factor, .slow = last, .fast = first, .context = 0, .amplitude = amplitude};
}

} // namespace

int64_t rotaryColumns(const OpDescription &rope, int64_t headDim) {
  if (double last = number(rope, "last"); last > 0)
    return static_cast<int64_t>(last);
  return static_cast<int64_t>(static_cast<double>(headDim) * number(rope, "fraction"));
}

std::string scalingFault(const OpDescription &rope) {
  std::string scaling = scalingOf(rope);
  if (scaling.empty())
    return "";
  if (scaling != "linear" && scaling != "llama3" && scaling != "yarn")
    return fmt::format("no scaling '{}' of rotary positions, there are linear, llama3, yarn", scaling);
  if (double factor = number(rope, "factor"); !(factor >= 1))
    return fmt::format("the factor of rotary positions is {}, must be at least 1", factor);
  double low = number(rope, "low_turns"), high = number(rope, "high_turns");
  if (scaling == "llama3" && !(low < high))
    return fmt::format("rotary positions that turn less than {} times are scaled, those that turn more than {} times "
                       "are not: the first number must be smaller",
                       low, high);
  return "";
}

RotaryScaling rotaryScaling(const OpDescription &rope, int64_t rotary) {
  std::string scaling = scalingOf(rope);
  double factor = number(rope, "factor");
  if (scaling == "linear")
    return {.factor = factor};
  if (scaling == "llama3")
    return {.factor = factor,
            .slow = number(rope, "low_turns"),
            .fast = number(rope, "high_turns"),
            .context = number(rope, "original_context")};
  return scaling == "yarn" ? yarn(rope, rotary, factor) : RotaryScaling{};
}

} // namespace espalier
