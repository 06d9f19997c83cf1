// Imports config.json of models with experts: variants of an architecture, and wrong numbers of experts or groups.
#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/run/import_run.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

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

/// Returns the errors of the run file, each ended by a bar.
std::string runErrors(Json config, const std::string &key, int value) {
  config[key] = value;
  std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("espalier-hf-experts-" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << imported(config).yaml;
  ImportOptions options;
  options.searchPath = configs;
  std::string text = importRun(file.string(), options).diagnostics.render(), found;
  std::filesystem::remove(file);
  for (size_t at = 0; (at = text.find("error: ", at)) != std::string::npos; ++at)
    found += text.substr(at + 7, text.find('\n', at) - at - 7) + "|";
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
  EXPECT_THAT(errorsOf(glm4(), "attention_bias", false), HasSubstr("attention_bias is false, glm4_moe has only true"));
  config = glm4();
  config.erase("attention_bias");
  EXPECT_THAT(imported(config).diagnostics.render(),
              HasSubstr("attention_bias is not given, which means false: glm4_moe has only true"));
}

/// A wrong number of experts or groups is one error, without others that follow from it.
TEST(HfExperts, WrongNumbersAreOneError) {
  Json qwen2 = glm4();
  qwen2.update({{"model_type", "qwen2_moe"}, {"architectures", {"Qwen2MoeForCausalLM"}}, {"num_experts", 4}});
  for (const char *key : {"attention_bias", "n_routed_experts", "head_dim"})
    qwen2.erase(key);
  const std::string chosen = "num_experts_chosen is 9, must be at most 4 (expert_num)|";
  EXPECT_EQ(runErrors(qwen2, "num_experts_per_tok", 9), chosen);
  EXPECT_EQ(runErrors(glm4(), "num_experts_per_tok", 9), chosen);
  EXPECT_EQ(runErrors(glm4(), "topk_group", 5), "topk_group is 5, must be at most 1 (n_group)|");
  EXPECT_EQ(runErrors(glm4(), "n_group", 3), "wanted 1 to 32 equal groups of the 4 experts, of which at most all are "
                                             "kept, got 1 of 3 groups|");
  EXPECT_EQ(runErrors(glm4(), "first_k_dense_replace", 2),
            "first_k_dense_replace is 2, must be at most 1 (num_layers - 1)|");
}

} // namespace
} // namespace espalier
