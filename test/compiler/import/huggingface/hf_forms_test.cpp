// Forms of config.json that transformers and other software write: nulls, notes, other names, quantised weights, and
// models that also read images.
#include "test/compiler/import/huggingface/hf_samples.h"

#include "gmock/gmock.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// transformers writes null for a key that is not set.
TEST(HfForms, NullIsTransformersDefault) {
  Json config = gpt2();
  config["n_inner"] = nullptr;
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  EXPECT_EQ(runOf(config).config.model.dims.at("ffn"), 96);
  config = llama();
  for (const char *key : {"num_key_value_heads", "head_dim", "attention_dropout", "pretraining_tp", "rope_parameters"})
    config[key] = nullptr;
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  EXPECT_EQ(runOf(config).config.model.dims.at("kv_heads"), 6);
  config = deepseek();
  for (const char *key : {"norm_topk_prob", "rope_interleave", "attention_dropout"})
    config[key] = nullptr;
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  EXPECT_THAT(imported(config).yaml, AllOf(HasSubstr("norm_topk_prob: false"), HasSubstr("rope_interleave: false")))
      << "null is false where transformers asks whether the value is true";
}

// Python writes numbers that JSON lacks.
TEST(HfForms, InfinityAndNanAreNumbers) {
  const std::string text = R"({"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "vocab_size": 19,
    "hidden_size": 24, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 12, "n_groups": 2, "state_size": 10,
    "conv_kernel": 3, "max_position_embeddings": 8, "_name_or_path": "a \" Infinity", "residual_in_fp32": true,
    "layer_norm_epsilon": 1e-5, "time_step_limit": [0.0, Infinity]})";
  auto with = [&](const std::string &from, const std::string &to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return importHfConfig("config.json", changed, configs).diagnostics.render();
  };
  EXPECT_EQ(with("Infinity]", "Infinity]"), "");
  EXPECT_EQ(with("Infinity]", R"({"__float__": "Infinity"}])"), "");
  EXPECT_THAT(with("Infinity]", "0.1]"), HasSubstr("time_step_limit is [0.0,0.1], mamba2 has only [0, Infinity]"));
  EXPECT_THAT(with("0.0, Infinity", "0.001, Infinity"), HasSubstr("time_step_limit is [0.001,Infinity]"));
  EXPECT_THAT(with("Infinity]", "NaN]"), HasSubstr("time_step_limit is [0.0,NaN]"));
  EXPECT_THAT(with("1e-5", "Infinity"), HasSubstr("layer_norm_epsilon is Infinity, wanted a finite number"));
  EXPECT_THAT(with("Infinity]", "Infinit]"), HasSubstr("is no JSON"));
}

// Two places of one key must agree, because transformers reads one of them.
TEST(HfForms, TwoPlacesOfAKeyAgree) {
  Json config = llama(); // rope_theta is 500000
  config["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  config["rope_parameters"]["rope_theta"] = 10000.0;
  EXPECT_THAT(
      imported(config).diagnostics.render(),
      HasSubstr("rope_parameters.rope_theta is 10000.0, and rope_theta is 500000.0, which is the same; keep one"));
}

TEST(HfForms, TheTypeOfTheWeightsIsUsed) {
  for (const char *key : {"dtype", "torch_dtype"}) {
    Json config = gpt2();
    config[key] = "bfloat16";
    ImportedHf hf = imported(config);
    EXPECT_THAT(hf.yaml, HasSubstr("param_init_type: bfloat16"));
    EXPECT_TRUE(std::ranges::any_of(hf.keys, [&](const ImportedKey &used) { return used.key == key && used.isUsed; }));
  }
}

TEST(HfForms, NotesOfOtherSoftwareAreIgnored) {
  for (const char *key : {"unsloth_fixed", "unsloth_version", "unsloth_anything"})
    EXPECT_EQ(errorsOf(llama(), key, "2024.9"), "") << key;
}

TEST(HfForms, KimiK2IsDeepseekV3) {
  Json config = deepseek();
  config["model_type"] = "kimi_k2";
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  Diagnostics diagnostics;
  EXPECT_EQ(Json::parse(hfConfigText(runOf(config), "bfloat16", diagnostics))["model_type"], "deepseek_v3");
}

TEST(HfForms, BiasesAreParametersOfTheModel) {
  Json config = llama();
  int64_t without = runOf(config).config.model.parameterCount();
  config["attention_bias"] = true; // 24 of q, 8 of k, 8 of v, 24 of the output
  EXPECT_EQ(runOf(config).config.model.parameterCount(), without + 2 * (24 + 8 + 8 + 24));
  config["mlp_bias"] = true; // 40 of the gate, 40 of the up projection, 24 of the down projection
  ImportedRun run = runOf(config);
  EXPECT_EQ(run.config.model.parameterCount(), without + 2 * (24 + 8 + 8 + 24 + 40 + 40 + 24));
  Diagnostics diagnostics;
  Json written = Json::parse(hfConfigText(run, "bfloat16", diagnostics));
  EXPECT_EQ(written["attention_bias"], true);
  EXPECT_EQ(written["mlp_bias"], true);
}

// A width of heads that the config does not give is hidden_size / num_attention_heads, whatever the model file says.
TEST(HfForms, HeadDimIsTransformersNotTheModelFiles) {
  Json config = {{"model_type", "glm4_moe"}, {"hidden_size", 24},          {"num_attention_heads", 6},
                 {"num_key_value_heads", 2}, {"moe_intermediate_size", 8}, {"n_routed_experts", 4},
                 {"num_experts_per_tok", 2}};
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  EXPECT_THAT(imported(config).yaml, HasSubstr("head_dim: 4  # hidden_size / num_attention_heads"));
}

TEST(HfForms, QuantizedWeightsAreDequantizedFirst) {
  for (Json config : {gpt2(), llama(), deepseek()}) {
    std::string errors = errorsOf(config, "quantization_config", {{"quant_method", "gptq"}});
    EXPECT_THAT(errors, AllOf(HasSubstr("error: the weights are quantised (gptq); dequantise them first: "),
                              HasSubstr(".dequantize()"), HasSubstr("docs/from_huggingface.md")));
    EXPECT_THAT(errors, testing::Not(HasSubstr("remove it")));
    EXPECT_EQ(errorsOf(config, "quantization_config", nullptr), "");
    for (const char *method : {"fp8", "mxfp4"}) // conversions decode these
      EXPECT_EQ(errorsOf(config, "quantization_config", {{"quant_method", method}}), "");
  }
}

// The text model of a model that also reads images.
TEST(HfForms, TextConfigIsTheModel) {
  Json inner = llama();
  for (const char *key : {"architectures", "torch_dtype", "tie_word_embeddings"})
    inner.erase(key);
  Json config = {{"architectures", {"LlavaForConditionalGeneration"}},
                 {"model_type", "llava"},
                 {"vision_config", {{"hidden_size", 1024}, {"model_type", "clip_vision_model"}}},
                 {"image_token_index", 7},
                 {"text_config", inner},
                 {"tie_word_embeddings", true},
                 {"torch_dtype", "bfloat16"}};
  ImportedHf hf = imported(config);
  EXPECT_EQ(hf.diagnostics.render(), "");
  EXPECT_THAT(hf.yaml, AllOf(HasSubstr("type: LlamaForCausalLM"), HasSubstr("hidden_size: 24"),
                             HasSubstr("tie_word_embeddings: true"), HasSubstr("compute_dtype: bfloat16")));
  EXPECT_TRUE(std::ranges::any_of(hf.keys, [](const ImportedKey &key) {
    return key.key == "vision_config" && key.effect.find("left out") != std::string::npos;
  }));
  config["text_config"]["hidden_size"] = "many";
  EXPECT_THAT(imported(config).diagnostics.render(), HasSubstr("config.json:14:")) << "the line of the text model";
  config["text_config"]["hidden_size"] = 24;
  Diagnostics diagnostics;
  ImportedRun run = runOf(llama());
  Json written = Json::parse(agreeingHfConfig(run, "bfloat16", "c", config.dump(), diagnostics));
  EXPECT_EQ(diagnostics.render(), "");
  EXPECT_EQ(written["architectures"], Json({"LlamaForCausalLM"}));
  EXPECT_FALSE(written.contains("text_config")) << "the export is the text model alone";
}

} // namespace
} // namespace espalier
