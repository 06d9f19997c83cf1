#include "compiler/import/megatron/section_flags.h"

#include <algorithm>

namespace espalier {

namespace {

const std::string section = "moe_config.";

/// Returns the number of zeros before the first one of ([0]*3+[1]*58), or nothing if other layers are dense or the list
/// has another length.
std::optional<int64_t> denseLayersFirst(const std::string &bare, int64_t layers) {
  for (int64_t dense = 1; dense < layers; ++dense)
    if (bare == fmt::format("[0]*{}+[1]*{}", dense, layers - dense) ||
        (dense == 1 && bare == fmt::format("[0]+[1]*{}", layers - 1)))
      return dense;
  return bare == "1" || bare == fmt::format("[1]*{}", layers) ? std::optional<int64_t>(0) : std::nullopt;
}

/// Checks that every layer has experts. Megatron's flag is a period or a list of ones and zeros, such as ([1]*48).
void checkLayers(GivenFlags &given, RunFileWriter &yaml, int64_t layers, bool statesModel) {
  const char *flag = "--moe-layer-freq";
  bool isHybrid = hasHybridPattern(given);
  if (!statesModel || isHybrid) {
    given.value(flag, fmt::format("{} decides which layers have experts",
                                  isHybrid ? hybridPatternFlag : "the base file's model"));
    return;
  }
  std::string frequency = given.value(flag, "every layer has experts").value_or("1"), bare;
  for (char c : frequency)
    if (std::string_view("()'\" ").find(c) == std::string_view::npos)
      bare += c;
  std::optional<int64_t> dense = denseLayersFirst(bare, layers);
  if (hasBiasedRouter(given) && dense)
    yaml.put("model.model_config.first_k_dense_replace", fmt::format("{}", *dense), given.isGiven(flag) ? flag : "");
  else if (hasBiasedRouter(given))
    given.error(flag,
                fmt::format("dense layers come before all layers with experts here, such as ([0]*1+[1]*{}), got {}",
                            layers - 1, frequency));
  else if (bare != "1" && bare != fmt::format("[1]*{}", layers))
    given.error(flag, fmt::format("every layer has experts here, got {}; {}: {} → 1", frequency, flag, frequency));
}

void writeBalancing(GivenFlags &given, RunFileWriter &yaml, bool statesModel) {
  const char *kindFlag = "--moe-router-load-balancing-type", *factorFlag = "--moe-aux-loss-coeff";
  const std::string key = section + "aux_loss_factor";
  std::string kind = given.value(kindFlag, key).value_or("aux_loss");
  std::string factor = given.number(factorFlag, key).value_or("0");
  if (kind != "aux_loss" && kind != "seq_aux_loss" && kind != "none")
    given.error(kindFlag, fmt::format("experts are balanced by aux_loss, seq_aux_loss or none here, got {}", kind));
  else if (kind == "aux_loss" && factor != "0")
    given.warning(given.isGiven(kindFlag) ? kindFlag : factorFlag,
                  "aux_loss balances each micro-batch; here each sample is balanced, as by seq_aux_loss");
  if (statesModel || given.isGiven(kindFlag) || given.isGiven(factorFlag))
    yaml.put(key, kind == "none" ? "0" : factor, given.isGiven(factorFlag) ? factorFlag : "");
}

/// Writes the router of glm4_moe and deepseek_v3: sigmoids, a bias, groups, a scale and shared experts.
void writeBiasedRouter(GivenFlags &given, RunFileWriter &yaml) {
  const char *scoreFlag = "--moe-router-score-function", *rateFlag = "--moe-router-bias-update-rate",
             *sharedFlag = "--moe-shared-expert-intermediate-size", *widthFlag = "--moe-ffn-hidden-size";
  given.isSet("--moe-router-enable-expert-bias", section + "balance_via_topk_bias");
  if (std::string score = given.value(scoreFlag, section + "use_gating_sigmoid").value_or("softmax");
      score != "sigmoid")
    given.error(scoreFlag, fmt::format("a bias is added to sigmoids, got {}; {} → sigmoid", score, scoreFlag));
  yaml.put(section + "topk_bias_update_rate",
           given.number(rateFlag, section + "topk_bias_update_rate").value_or("0.001"),
           given.isGiven(rateFlag) ? rateFlag : "");
  for (auto [flag, key] : {std::pair("--moe-router-topk-scaling-factor", "routed_scaling_factor"),
                           {"--moe-router-num-groups", "n_group"},
                           {"--moe-router-group-topk", "topk_group"}})
    yaml.put(section + key, given.number(flag, section + key).value_or("1"), given.isGiven(flag) ? flag : "");
  int64_t shared = given.count(sharedFlag, section + "shared_expert_num").value_or(0);
  int64_t width = given.count(widthFlag, "model.model_config.moe_intermediate_size").value_or(0);
  if (hasHybridPattern(given) && shared > 0)
    yaml.put("model.model_config.moe_shared_expert_intermediate_size", fmt::format("{}", shared), sharedFlag);
  else if (hasHybridPattern(given))
    given.error(sharedFlag, fmt::format("nemotron_h has a shared expert: add {}", sharedFlag));
  else if (width <= 0 || shared <= 0 || shared % width != 0)
    given.error(sharedFlag,
                fmt::format("shared experts have the width of an expert here: wanted a multiple of {} {}, got {}",
                            widthFlag, width, shared));
  else
    yaml.put(section + "shared_expert_num", fmt::format("{}", shared / width), sharedFlag);
}

} // namespace

bool hasBiasedRouter(const GivenFlags &given) { return given.isGiven("--moe-router-enable-expert-bias"); }

std::vector<std::string> biasedRouterFlags(const GivenFlags &given) {
  if (!hasBiasedRouter(given))
    return {};
  return {"--moe-shared-expert-intermediate-size", "--moe-router-score-function", "--moe-router-topk-scaling-factor",
          "--moe-router-num-groups", "--moe-router-group-topk"};
}

int64_t writeExpertSplit(GivenFlags &given, RunFileWriter &yaml, int64_t tensorRanks, int64_t contextRanks,
                         int64_t replicas) {
  const char *flag = "--expert-model-parallel-size", *tensorFlag = "--expert-tensor-parallel-size";
  const std::string key = "parallel_config.expert_parallel", wholeKey = "planner.pin.expert_tensor_parallel";
  std::optional<int64_t> stated = given.count(flag, key);
  int64_t tensor = given.count(tensorFlag, wholeKey).value_or(tensorRanks), ranks = stated.value_or(1);
  if (tensor != tensorRanks && tensor != 1) {
    given.error(tensorFlag, fmt::format("each expert is split over all tensor ranks or over none; {}: {} → {} or 1",
                                        tensorFlag, tensor, tensorRanks));
    return 1;
  }
  // Unsharded experts are also distributed over tensor ranks. Megatron's ep then equals our ep times tp. Its experts
  // take context ranks before those of dp.
  bool isWhole = tensor != tensorRanks;
  int64_t spread = isWhole ? tensorRanks : 1;
  bool isFolded = contextRanks > 1 && ranks % (spread * contextRanks) == 0;
  std::string divisors = isWhole ? fmt::format(" / tp {}", spread) : "";
  if (isFolded) {
    spread *= contextRanks;
    divisors += fmt::format(" / cp {}", contextRanks);
  }
  if (ranks % spread != 0)
    given.error(flag,
                fmt::format("tensor ranks hold whole experts, too: ep {} is not a multiple of tp {}", ranks, spread));
  else if (replicas % (ranks / spread) != 0)
    given.error(flag, fmt::format("experts are spread over replicas of the model: dp {} is not a multiple of ep {}{}",
                                  replicas, ranks, divisors));
  if (stated)
    yaml.put(key, fmt::format("{}", ranks / spread), flag);
  if (isWhole)
    yaml.put(wholeKey, "False", tensorFlag);
  if (isFolded)
    yaml.put("planner.pin.experts_over_context", "True", flag);
  bool isSplit = ranks % spread == 0 && replicas % (ranks / spread) == 0;
  return isSplit ? ranks / spread : 1;
}

void writeRouting(GivenFlags &given, RunFileWriter &yaml, int64_t layers, bool statesModel) {
  if (!given.isGiven("--num-experts"))
    return;
  checkLayers(given, yaml, layers, statesModel);
  if (const char *flag = "--moe-layer-recompute"; given.isSet(flag, "layers with experts keep their activations"))
    given.warning(flag,
                  "experts are not recomputed alone, so that their layers keep more; --recompute-granularity full "
                  "recomputes all of a layer");
  if (statesModel && hasBiasedRouter(given))
    writeBiasedRouter(given, yaml);
  auto put = [&](const char *key, const std::optional<std::string> &value, const std::string &otherwise,
                 const char *flag) {
    if (value || statesModel)
      yaml.put(section + key, value.value_or(otherwise), value ? flag : "");
  };
  std::optional<std::string> experts = given.number("--num-experts", section + "expert_num"),
                             chosen = given.number("--moe-router-topk", section + "num_experts_chosen");
  put("expert_num", experts, "1", "--num-experts");
  put("num_experts_chosen", chosen, "2", "--moe-router-topk");
  const char *capacityFlag = "--moe-expert-capacity-factor";
  const std::string key = section + "capacity_factor";
  if (given.isStated(capacityFlag) && given.value(capacityFlag, key).value_or("").starts_with('-'))
    yaml.put(key, "0", capacityFlag); // a negative factor means none
  else
    put("capacity_factor", given.number(capacityFlag, key), "0", capacityFlag);
  // The weights of sigmoids are normalized over the chosen experts either way.
  bool weighsBefore = given.isSet("--moe-router-pre-softmax", section + "norm_topk_prob") && !hasBiasedRouter(given);
  if (weighsBefore || statesModel)
    yaml.put(section + "norm_topk_prob", weighsBefore ? "False" : "True",
             weighsBefore ? "--moe-router-pre-softmax" : "");
  writeBalancing(given, yaml, statesModel);
  const char *zFlag = "--moe-z-loss-coeff";
  if (std::optional<std::string> factor = given.number(zFlag, section + "z_loss_factor"))
    yaml.put(section + "z_loss_factor", *factor, zFlag);
}

} // namespace espalier
