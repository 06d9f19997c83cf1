// Imports QK-clip (Kimi K2, 2025; Megatron's --qk-clip): marks the attentions whose largest scores are kept, and the
// query and key weights that an update scales.
#include "compiler/import/run/run_reader.h"
#include "format/counters.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace espalier {
namespace {

constexpr const char *enabledKey = "optimizer.qk_clip_enabled", *thresholdKey = "optimizer.qk_clip_threshold",
                     *alphaKey = "optimizer.qk_clip_alpha";
constexpr double defaultThreshold = 100; // MindFormers' and Megatron's

/// Marks the attentions of one segment.
class ClipMarker {
public:
  ClipMarker(SegmentDescription &segment, double alpha) : segment(segment), alpha(alpha) {}

  /// Returns the number of marked attentions, or the reason why one cannot be marked.
  int mark(std::string &fault);

private:
  std::string faultOf(const OpDescription &attention);
  ParameterDescription *weightOf(const std::string &scored, std::string &fault);

  SegmentDescription &segment;
  const double alpha;
  int marked = 0;
};

int ClipMarker::mark(std::string &fault) {
  for (OpDescription &op : segment.ops) {
    if (op.kind != "attention")
      continue;
    std::string reason = faultOf(op);
    if (!reason.empty()) {
      fault = fmt::format("cannot clip the attention of segment {}: {}", segment.kind, reason);
      return marked;
    }
    op.maxima = fmt::format("{}{}", rt::largestCounter, marked++);
  }
  return marked;
}

std::string ClipMarker::faultOf(const OpDescription &attention) {
  auto cap = attention.numbers.find("soft_cap");
  if (cap != attention.numbers.end() && cap->second > 0)
    return fmt::format("a soft cap limits its scores to {} already", cap->second);
  if (attention.inputs.size() > 3 && attention.inputs[3] != "visible_from")
    return "its sinks take part in the softmax";
  std::string fault;
  std::array<ParameterDescription *, 2> weights = {}; // of queries and keys
  for (size_t side = 0; side < weights.size() && fault.empty(); ++side)
    weights[side] = weightOf(attention.inputs.at(side), fault);
  if (!fault.empty())
    return fault;
  if (weights[0] == weights[1])
    return fmt::format("queries and keys have one weight, {}", weights[0]->name);
  const std::vector<std::string> &ofKeys = weights[1]->dims; // .., key-value heads, columns of a head
  if (ofKeys.size() < 3)
    return fmt::format("{} has no dimension of heads", weights[1]->name);
  const std::string &heads = ofKeys[ofKeys.size() - 2];
  std::string counter = fmt::format("{}{}", rt::largestCounter, marked);
  for (size_t side = 0; side < weights.size(); ++side) {
    auto place = std::find(weights[side]->dims.begin(), weights[side]->dims.end(), heads);
    if (place == weights[side]->dims.begin() || place == weights[side]->dims.end())
      return fmt::format("{} has no columns of the key-value heads {}", weights[side]->name, heads);
    weights[side]->clip = {.counter = counter, .heads = heads, .exponent = side == 0 ? alpha : 1 - alpha};
  }
  return "";
}

/// Returns the weight whose product with the stream, maybe rotated, is `scored`. Scaling the weight of a head then
/// scales the head's scores.
ParameterDescription *ClipMarker::weightOf(const std::string &scored, std::string &fault) {
  auto maker = std::ranges::find_if(
      segment.ops, [&](const OpDescription &op) { return std::ranges::count(op.outputs, scored) > 0; });
  if (maker != segment.ops.end() && maker->kind == "rope")
    return weightOf(maker->inputs.front(), fault);
  if (maker == segment.ops.end() || maker->kind != "linear") {
    bool isNorm = maker != segment.ops.end() && maker->kind.ends_with("_norm");
    fault = isNorm
                ? fmt::format("its operand {} is the result of a norm, which removes the scale of the weight", scored)
                : fmt::format("its operand {} is not the product of one weight for all heads, as in multi-head and "
                              "grouped-query attention",
                              scored);
    return nullptr;
  }
  const std::string &name = maker->inputs.at(1);
  auto weight = std::ranges::find(segment.parameters, name, &ParameterDescription::name);
  auto reads = std::ranges::count_if(segment.ops,
                                     [&](const OpDescription &op) { return std::ranges::count(op.inputs, name) > 0; });
  if (weight == segment.parameters.end() || reads != 1 || !weight->tiedTo.empty())
    fault = fmt::format("{} is not a weight of its operand {} alone", name, scored);
  else if (weight->frozen)
    fault = fmt::format("its weight {} is frozen", name);
  else if (weight->clip)
    fault = fmt::format("another attention has the weight {}, too", name);
  return fault.empty() ? &*weight : nullptr;
}

} // namespace

void importQkClip(const RunReader &reader) {
  RunConfig &config = reader.config();
  OptimizerConfig &optimizer = config.optimizer;
  optimizer.qkClipAlpha = reader.number(alphaKey).value_or(optimizer.qkClipAlpha);
  if (!(optimizer.qkClipAlpha >= 0 && optimizer.qkClipAlpha <= 1))
    return reader.error(alphaKey, fmt::format("{} is {}, must be 0 to 1", alphaKey, optimizer.qkClipAlpha));
  std::optional<double> threshold = reader.number(thresholdKey);
  std::optional<bool> isEnabled = reader.flag(enabledKey);
  if (!isEnabled.value_or(threshold.has_value())) {
    const char *reason = isEnabled ? "qk_clip_enabled is False" : "belongs to qk_clip_threshold, which is not set";
    for (const char *key : {thresholdKey, alphaKey})
      reader.report(key, KeyAction::Accepted, reason);
    return;
  }
  const char *givenKey = threshold ? thresholdKey : enabledKey;
  if (!threshold)
    threshold = defaultThreshold;
  if (!(*threshold > 0 && *threshold <= 1e30))
    return reader.error(thresholdKey, fmt::format("{} is {}, must be above 0 and at most 1e30; leave it out to train "
                                                  "without QK-clip",
                                                  thresholdKey, *threshold));
  optimizer.qkClipThreshold = *threshold;
  if (config.runMode != "train" && config.runMode != "finetune")
    return reader.report(givenKey, KeyAction::Accepted, "nothing is trained");
  int marked = 0;
  std::string fault;
  for (SegmentDescription &segment : config.model.segments)
    marked += fault.empty() ? ClipMarker(segment, optimizer.qkClipAlpha).mark(fault) : 0;
  if (fault.empty() && marked == 0 && !config.model.segments.empty()) // else the model has errors
    fault = "the model has no attention whose scores could be clipped";
  if (!fault.empty())
    reader.error(givenKey, fmt::format("{}; leave {} out", fault, givenKey));
}

} // namespace espalier
