// Refuses values of MindFormers keys that have only one supported value. Another value would give a different model.
#include "compiler/import/run/run_reader.h"
#include "compiler/import/run/unbuilt_feature.h"

#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>

namespace espalier {
namespace {

constexpr UnbuiltFeature unbuiltKeys[] = {
    {"moe_config.balance_via_topk_bias", "false", "this architecture balances experts by a loss, glm4_moe by a bias"},
    {"moe_config.shared_expert_num", "0", "this architecture has no shared experts, glm4_moe has"},
    {"moe_config.use_shared_expert_gating", "false", "this architecture has no shared expert, qwen2_moe has"},
    {"moe_config.routed_scaling_factor", "1", "this architecture does not scale the weights of experts, glm4_moe does"},
    {"moe_config.topk_method", "greedy", "this architecture has no groups of experts, glm4_moe has"},
    {"moe_config.n_group", "1", "this architecture has no groups of experts, glm4_moe has"},
    {"moe_config.topk_group", "1", "this architecture has no groups of experts, glm4_moe has"},
    {"moe_config.use_gating_sigmoid", "false", "this architecture scores experts by a softmax, glm4_moe by sigmoids"},
    {"moe_config.first_k_dense_replace", "0", "this architecture has no dense layers, glm4_moe has"},
    {"moe_config.enable_cold_hot_expert", "false", "no expert has copies"},
    {"moe_config.aux_loss_factors", nullptr, "the balancing loss has one weight, aux_loss_factor"},
    {"ignore_data_skip", "false", "a resumed run continues behind the data that it has read"},
    {"data_skip_steps", "0", "a resumed run continues behind the data that it has read"},
    {"use_checkpoint_health_monitor", "false", "a run does not go back to an older checkpoint that has a lower loss"},
    {"model.model_config.quantization_config", nullptr,
     "quantized weights are not built, a plan holds those of the types "
     "that param_init_type and compute_dtype say"},
    {"model.model_config.pet_config.exclude_layers", nullptr, "adapters are selected by target_modules alone"},
    {"model.model_config.pet_config.freeze_include", nullptr, "a run with adapters freezes all other parameters"},
    {"model.model_config.pet_config.freeze_exclude", nullptr, "a run with adapters freezes all other parameters"},
};

int bytesOf(const std::string &type) { return type == "float32" ? 4 : type == "float16" || type == "bfloat16" ? 2 : 0; }

/// Checks the type of the token table, which equals that of all parameters. Another type of the same size is reported,
/// because it only rounds differently.
void checkEmbeddingType(const RunReader &reader, const SizeTable &sizes) {
  const char *path = "model.model_config.embedding_init_type";
  auto size = sizes.find("param_init_type");
  std::string type = reader.text(path).value_or(""), own = size == sizes.end() ? "" : size->second.text;
  if (type.empty() || own.empty())
    return;
  if (bytesOf(type) == 0)
    reader.error(path, fmt::format("no type '{}', there are bfloat16, float16, float32", type));
  else if (bytesOf(type) != bytesOf(own))
    reader.refuse(path, fmt::format("the token table has the type of all parameters, param_init_type {}, not {}; "
                                    "embedding_init_type: {} → {}",
                                    own, type, type, own));
  else
    reader.report(path, KeyAction::Mapped, fmt::format("the token table has param_init_type, {}", own));
}

} // namespace

bool UnbuiltFeature::isOff(const YamlNode &value) const {
  if (!neutral)
    return false;
  YamlNode wanted;
  wanted.kind = YamlNode::Kind::Scalar;
  wanted.text = neutral;
  if (std::optional<bool> flag = yamlBool(wanted))
    return yamlBool(value) == flag;
  std::optional<double> number = yamlNumber(wanted);
  return number ? yamlNumber(value) == number : value.isScalar() && value.text == neutral;
}

void refuseUnbuilt(const RunReader &reader, const Architecture *architecture, const SizeTable &sizes) {
  for (const UnbuiltFeature &feature : unbuiltKeys) {
    const auto &[path, neutral, reason] = feature;
    const YamlNode *value = reader.find(path);
    std::string key = std::string(path).substr(std::string(path).rfind('.') + 1);
    bool isSize = std::string_view(path).starts_with("moe_config.") && architecture && architecture->ownSizeRule(key);
    if (!value || feature.isOff(*value) || isSize)
      continue;
    reader.refuse(path,
                  fmt::format("{}; {}", reason,
                              neutral ? fmt::format("{}: {} → {}", key, flowText(*value), neutral) : "remove " + key));
  }
  checkEmbeddingType(reader, sizes);
}

} // namespace espalier
