// Imports config.json of models with experts: variants of an architecture, and wrong numbers of experts or groups.
#include "compiler/import/huggingface/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::vector<std::string> configs = {ESPALIER_SOURCE_DIR "/configs"};

Json glm4() {
  return Json::parse(R"({"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "vocab_size": 19,
                         "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "head_dim": 8,
                         "num_key_value_heads": 2, "attention_bias": true, "intermediate_size": 40,
                         "moe_intermediate_size": 12, "n_routed_experts": 4, "num_experts_per_tok": 2,
                         "max_position_embeddings": 8})");
}

ImportedHf imported(const Json &config) { return importHfConfig("config.json", config.dump(1), configs); }

std::string errorsOf(Json config, const std::string &key, const Json &value) {
  config[key] = value;
  return imported(config).diagnostics.render();
}

/// Returns the errors of the config, each as LINE:COLUMN: MESSAGE, or MESSAGE without a line, and ended by a bar.
std::string faultsOf(Json config, const std::string &key, const Json &value) {
  config[key] = value;
  std::string found;
  for (const Diagnostic &fault : imported(config).diagnostics.sorted()) {
    EXPECT_EQ(fault.where.file, "config.json");
    found += (fault.where.line > 0 ? std::to_string(fault.where.line) + ":" : "") + fault.message + "|";
  }
  return found;
}

/// GLM-4.5-Air has no norms of q and k, GLM-4.5 has them.
TEST(HfExperts, Glm4HasNormsOfQueriesAndKeysOrNone) {
  Json config = glm4();
  ImportedHf made = imported(config);
  EXPECT_EQ(made.diagnostics.render(), "");
  EXPECT_THAT(made.yaml, HasSubstr("type: Glm4MoeForCausalLM"));
  config["use_qk_norm"] = true;
  made = imported(config);
  EXPECT_EQ(made.diagnostics.render(), "");
  EXPECT_THAT(made.yaml, HasSubstr("type: glm4_moe_qk_norm"));
  EXPECT_EQ(errorsOf(glm4(), "attention_bias", false), "");
  config = glm4();
  config.erase("attention_bias");
  EXPECT_THAT(imported(config).yaml, HasSubstr("attention_bias: false  # transformers' default"));
}

/// A wrong number of experts or groups is one error at the config's key, without others that follow from it.
TEST(HfExperts, WrongNumbersAreOneError) {
  Json qwen2 = glm4();
  qwen2.update({{"model_type", "qwen2_moe"}, {"architectures", {"Qwen2MoeForCausalLM"}}, {"num_experts", 4}});
  for (const char *key : {"attention_bias", "n_routed_experts", "head_dim"})
    qwen2.erase(key);
  EXPECT_EQ(faultsOf(qwen2, "num_experts_per_tok", 9),
            "12:num_experts_per_tok: num_experts_chosen is 9, must be at most 4 (expert_num)|");
  EXPECT_EQ(faultsOf(qwen2, "num_experts", nullptr), "11:num_experts is null, wanted a number; without the key it is "
                                                     "transformers' default, 60|");
  EXPECT_EQ(faultsOf(glm4(), "num_experts_per_tok", 9),
            "14:num_experts_per_tok: num_experts_chosen is 9, must be at most 4 (topk_group * expert_num / n_group)|");
  EXPECT_EQ(faultsOf(glm4(), "topk_group", 5), "17:topk_group is 5, must be at most 1 (n_group)|");
  EXPECT_EQ(faultsOf(glm4(), "n_group", 3), "13:n_routed_experts: expert_num is 4, must be a multiple of 3 (n_group)|");
  EXPECT_EQ(faultsOf(glm4(), "first_k_dense_replace", 2),
            "6:first_k_dense_replace is 2, must be at most 1 (num_layers - 1)|");
}

/// Wrong sizes of latent attention and of layers are one error at the config's key.
TEST(HfExperts, WrongSizesOfDeepseekAreOneError) {
  Json config = Json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
                                "vocab_size": 19, "hidden_size": 24, "num_hidden_layers": 2,
                                "first_k_dense_replace": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
                                "q_lora_rank": 10, "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
                                "v_head_dim": 10, "intermediate_size": 40, "n_routed_experts": 8, "n_group": 2,
                                "topk_group": 1, "num_experts_per_tok": 4, "max_position_embeddings": 8})");
  auto messageOf = [&](const std::string &key, const Json &value) {
    std::string found = faultsOf(config, key, value);
    return found.substr(found.find(':') + 1);
  };
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  EXPECT_EQ(faultsOf(config, "first_k_dense_replace", 2), "");
  EXPECT_EQ(messageOf("first_k_dense_replace", 3), "first_k_dense_replace is 3, must be at most 2 (num_layers)|");
  EXPECT_EQ(messageOf("kv_lora_rank", nullptr), "kv_lora_rank is null, wanted a number; without the key it is "
                                                "transformers' default, 512|");
  EXPECT_EQ(messageOf("kv_lora_rank", "12"), "kv_lora_rank is \"12\", wanted a number; without the key it is "
                                             "transformers' default, 512|");
  EXPECT_EQ(messageOf("kv_lora_rank", 0), "kv_lora_rank is 0, must be at least 1|");
  EXPECT_EQ(messageOf("qk_rope_head_dim", 3), "qk_rope_head_dim is 3, must be a multiple of 2|");
  EXPECT_EQ(messageOf("n_shared_experts", nullptr), "n_shared_experts is null, wanted a number; without the key it is "
                                                    "transformers' default, 1|");
  EXPECT_EQ(messageOf("n_group", 3), "n_routed_experts: expert_num is 8, must be a multiple of 3 (n_group)|");
  EXPECT_EQ(messageOf("num_experts_per_tok", 5),
            "num_experts_per_tok: num_experts_chosen is 5, must be at most 4 (topk_group * expert_num / n_group)|");
  EXPECT_EQ(messageOf("num_key_value_heads", 2),
            "num_key_value_heads: n_kv_heads can only be num_heads here: every head has its own key and value|");
  EXPECT_EQ(messageOf("qk_head_dim", 12),
            "qk_head_dim is 12, deepseek_v3 has only qk_nope_head_dim + qk_rope_head_dim|");
  for (auto [key, value] : {std::pair("qk_head_dim", 10), std::pair("head_dim", 4)})
    EXPECT_EQ(faultsOf(config, key, value), "") << key;
  // transformers makes all layers dense if there are no more than its default.
  config.erase("first_k_dense_replace");
  EXPECT_EQ(imported(config).diagnostics.render(), "");
}

/// Null means a number for some keys, and is an error for the others. A list has an item for each layer.
TEST(HfExperts, WrongSizesOfOtherModelsAreOneError) {
  Json mixtral = Json::parse(R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 19,
                                 "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6,
                                 "num_key_value_heads": null, "intermediate_size": 40, "num_local_experts": 4,
                                 "num_experts_per_tok": 2, "max_position_embeddings": 8})");
  EXPECT_EQ(imported(mixtral).diagnostics.render(), "");
  EXPECT_THAT(imported(mixtral).yaml, HasSubstr("n_kv_heads: 6  # num_attention_heads\n"));
  EXPECT_EQ(faultsOf(mixtral, "max_position_embeddings", 0), "7:max_position_embeddings is 0, must be at least 1|");
  Json gemma = Json::parse(R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "vocab_size": 19,
                               "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "head_dim": 8,
                               "num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 8,
                               "sliding_window": null, "attn_logit_softcapping": null,
                               "layer_types": ["sliding_attention", "full_attention"]})");
  EXPECT_EQ(imported(gemma).diagnostics.render(), "");
  EXPECT_THAT(faultsOf(gemma, "query_pre_attn_scalar", nullptr),
              HasSubstr("query_pre_attn_scalar is null, wanted a number"));
  EXPECT_THAT(faultsOf(gemma, "hidden_activation", nullptr), HasSubstr("hidden_activation is null, wanted a name"));
  EXPECT_THAT(faultsOf(gemma, "head_dim", 7),
              HasSubstr("rotary positions turn pairs of a head's values, wanted an even head_dim, got 7|"));
  EXPECT_THAT(faultsOf(gemma, "layer_types", {"sliding_attention"}),
              HasSubstr(":layer_types has 1 items, wanted one for each of 2 layers|"));
}

} // namespace
} // namespace espalier
