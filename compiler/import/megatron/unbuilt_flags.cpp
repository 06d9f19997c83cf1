#include "compiler/import/megatron/unbuilt_flags.h"

#include "compiler/import/megatron/expert_flags.h"
#include "compiler/import/run/unbuilt_feature.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {

namespace {

constexpr const char *oneDecay = "the weight decay is the same in all steps, --weight-decay";

constexpr UnbuiltFeature unbuilt[] = {
    {"--muon-scalar-optimizer", "adam", "AdamW updates what is no matrix of a layer"},
    {"--muon-coefficient-type", "quintic", "Newton-Schulz steps have the quintic coefficients"},
    {"--start-weight-decay", nullptr, oneDecay},
    {"--end-weight-decay", nullptr, oneDecay},
    {"--weight-decay-incr-style", "constant", oneDecay},
    {"--min-loss-scale", "1", "the lowest loss scale is 1"},
    {"--no-fp8-wgrad", nullptr, "all products of a layer have one format"},
    {"--dataloader-type", "single", "samples are shuffled once and taken in order"},
    {"--moe-shared-expert-intermediate-size", "0", "shared experts are built with --moe-router-enable-expert-bias"},
    {"--moe-input-jitter-eps", "0", "tokens go to the router without noise"},
    {"--moe-router-score-function", "softmax", "sigmoids are built with --moe-router-enable-expert-bias"},
    {"--moe-router-topk-scaling-factor", "1", "scaled weights are built with --moe-router-enable-expert-bias"},
    {"--moe-router-num-groups", "1", "groups are built with --moe-router-enable-expert-bias"},
    {"--moe-router-group-topk", "1", "groups are built with --moe-router-enable-expert-bias"},
    {"--moe-router-topk-limited-devices", nullptr, "tokens choose among all experts"},
    {"--moe-router-force-load-balancing", nullptr, "the router's scores choose the experts"},
    {"--moe-apply-probs-on-input", nullptr, "experts are weighed behind their last product"},
    {"--moe-extended-tp", nullptr, "tp splits each expert, say --expert-tensor-parallel-size"},
    {"--moe-use-upcycling", nullptr, "a dense checkpoint is not turned into experts"},
};

/// Flags that the architecture with a biased router has.
constexpr std::string_view ofBiasedRouter[] = {"--moe-shared-expert-intermediate-size", "--moe-router-score-function",
                                               "--moe-router-topk-scaling-factor", "--moe-router-num-groups",
                                               "--moe-router-group-topk"};

} // namespace

void refuseUnbuilt(GivenFlags &given) {
  for (const UnbuiltFeature &feature : unbuilt) {
    const auto &[flag, neutral, reason] = feature;
    bool isBuilt = hasBiasedRouter(given) && std::ranges::count(ofBiasedRouter, std::string_view(flag)) > 0;
    if (!given.isGiven(flag) || isBuilt)
      continue;
    std::optional<std::string> value = neutral ? given.value(flag, "as here") : std::nullopt;
    if (neutral && !value)
      continue; // already reported
    YamlNode scalar;
    scalar.kind = YamlNode::Kind::Scalar;
    scalar.text = value.value_or("");
    if (!feature.isOff(scalar))
      given.error(flag, fmt::format("{} has no counterpart here: {}{}", flag, reason,
                                    neutral ? fmt::format("; leave it out or say {}", neutral) : "; leave it out"));
  }
}

std::vector<std::string> unbuiltFlags() {
  std::vector<std::string> names;
  for (const UnbuiltFeature &feature : unbuilt)
    names.emplace_back(feature.name);
  return names;
}

} // namespace espalier
