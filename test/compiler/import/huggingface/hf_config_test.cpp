// Converts config.json of transformers to a run file and back. Each key is a size, is checked against its only
// supported value, is ignored, or is an error.
#include "test/compiler/import/huggingface/hf_samples.h"

#include "gmock/gmock.h"

#include <filesystem>
#include <fstream>

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(HfConfig, Gpt2) {
  ImportedHf hf = imported(gpt2());
  EXPECT_EQ(hf.diagnostics.render(), "");
  EXPECT_THAT(hf.yaml, AllOf(HasSubstr("type: GPT2LMHeadModel"), HasSubstr("seq_length: 8  # n_positions"),
                             HasSubstr("max_position_embeddings: 8"), HasSubstr("expand_ratio: 2  # n_inner"),
                             HasSubstr("layernorm_epsilon: 1e-5  # transformers' default"),
                             HasSubstr("param_init_type: float32"), HasSubstr("hidden_act: gelu_new")));
  std::map<std::string, bool> used;
  for (const ImportedKey &key : hf.keys)
    used[key.key] = key.isUsed;
  EXPECT_EQ(used.size(), gpt2().size());
  EXPECT_TRUE(used.at("n_embd"));
  EXPECT_FALSE(used.at("bos_token_id"));
}

TEST(HfConfig, LlamaTiedWithGroups) {
  ImportedHf hf = imported(llama());
  EXPECT_EQ(hf.diagnostics.render(), "");
  EXPECT_THAT(hf.yaml, AllOf(HasSubstr("n_kv_heads: 2"), HasSubstr("theta: 500000.0"), HasSubstr("rms_norm_eps: 1e-6"),
                             HasSubstr("tie_word_embeddings: true"), HasSubstr("param_init_type: bfloat16"),
                             HasSubstr("master_weights: True")));
}

// The configurations of published models.
TEST(HfConfig, PublishedModels) {
  Json small = Json::parse(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
    "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})");
  EXPECT_EQ(runOf(small).config.model.parameterCount(), 124439808);
  Json second = Json::parse(R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.31.0", "use_cache": true,
    "vocab_size": 32000})");
  EXPECT_EQ(runOf(second).config.model.parameterCount(), 6738415616);
  Json third = Json::parse(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 8192,
    "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
    "vocab_size": 128256})");
  EXPECT_EQ(runOf(third).config.model.parameterCount(), 8030261248);
}

/// A published model: its config.json, and its exact number of parameters.
struct Published {
  const char *name, *text;
  int64_t parameters;
};

class PublishedModels : public testing::TestWithParam<Published> {};

TEST_P(PublishedModels, HaveTheirParameters) {
  Json config = Json::parse(GetParam().text);
  ImportedHf hf = imported(config);
  EXPECT_EQ(hf.diagnostics.render(), "");
  ImportedRun run = runOf(config);
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.model.parameterCount(), GetParam().parameters);
  Diagnostics diagnostics;
  Json written = Json::parse(hfConfigText(run, "bfloat16", diagnostics));
  EXPECT_EQ(diagnostics.render(), "");
  EXPECT_EQ(runOf(written).config.model.parameterCount(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    KindsOfLlama, PublishedModels,
    testing::Values(
        Published{"Mistral7B", R"({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0,
          "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
          "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
          "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32768})",
                  7248023552},
        Published{"MistralNemo", R"({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0,
          "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
          "intermediate_size": 14336, "max_position_embeddings": 131072, "model_type": "mistral",
          "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
          "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "use_cache": true, "vocab_size": 131072})",
                  12247782400},
        Published{"Qwen2HalfB", R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
          "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896,
          "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
          "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
          "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
          "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false,
          "use_sliding_window": false, "vocab_size": 151936})",
                  494032768},
        Published{"Qwen3Small", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
          "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
          "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
          "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16,
          "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
          "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
          "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})",
                  596049920},
        Published{"Phi4", R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "auto_map": {}, "bos_token_id": 100257, "embd_pdrop": 0.0, "eos_token_id": 100257, "hidden_act": "silu",
          "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 17920, "max_position_embeddings": 16384,
          "model_type": "phi3", "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10,
          "original_max_position_embeddings": 16384, "pad_token_id": 100257, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
          "rope_scaling": null, "rope_theta": 250000, "sliding_window": null, "tie_word_embeddings": false,
          "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 100352})",
                  14659507200}),
    [](const auto &info) { return std::string(info.param.name); });

// These have windows, capped scores, scaled positions, layers of two kinds or a block of their own.
INSTANTIATE_TEST_SUITE_P(
    WithOptions, PublishedModels,
    testing::Values(
        Published{"Llama31", R"({"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
          "intermediate_size": 14336, "max_position_embeddings": 131072, "model_type": "llama",
          "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
          "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
          "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})",
                  8030261248},
        Published{"Llama32OneB", R"({"architectures": ["LlamaForCausalLM"], "head_dim": 64, "hidden_act": "silu",
          "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072, "model_type": "llama",
          "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
          "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
          "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 128256})",
                  1235814400},
        Published{"MistralWithAWindow", R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu",
          "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
          "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
          "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "vocab_size": 32000})",
                  7241732096},
        Published{"Gemma2TwoB", R"({"architectures": ["Gemma2ForCausalLM"], "attn_logit_softcapping": 50.0,
          "cache_implementation": "hybrid", "final_logit_softcapping": 30.0, "head_dim": 256,
          "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
          "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
          "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0,
          "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
          "torch_dtype": "float32", "vocab_size": 256000})",
                  2614341888},
        Published{"Gemma3OneB", R"({"architectures": ["Gemma3ForCausalLM"], "attn_logit_softcapping": null,
          "cache_implementation": "hybrid", "final_logit_softcapping": null, "head_dim": 256,
          "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
          "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
          "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256,
          "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
          "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16", "vocab_size": 262144})",
                  999885952},
        Published{"Olmo2", R"({"architectures": ["Olmo2ForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
          "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
          "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277,
          "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
          "torch_dtype": "float32", "vocab_size": 100352})",
                  7298617344},
        Published{"SmolLM3", R"({"architectures": ["SmolLM3ForCausalLM"], "hidden_act": "silu", "hidden_size": 2048,
          "intermediate_size": 11008,
          "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
          "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
          "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
          "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
          "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
          "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
          "full_attention"], "max_position_embeddings": 65536, "max_window_layers": 28, "model_type": "smollm3",
          "no_rope_layer_interval": 4,
          "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1,
          1, 1, 0, 1, 1, 1, 0], "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4,
          "pad_token_id": 128004, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0,
          "sliding_window": null, "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 128256})",
                  3075098624},
        Published{"StableLmThreeB", R"({"architectures": ["StableLmForCausalLM"], "bos_token_id": 0, "eos_token_id": 0,
          "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02, "intermediate_size": 6912,
          "layer_norm_eps": 1e-05, "max_position_embeddings": 4096, "model_type": "stablelm",
          "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
          "partial_rotary_factor": 0.25, "rope_theta": 10000, "tie_word_embeddings": false,
          "torch_dtype": "bfloat16", "use_cache": true, "use_qkv_bias": false, "vocab_size": 50304})",
                  2795443200},
        Published{"Pythia70M", R"({"architectures": ["GPTNeoXForCausalLM"], "classifier_dropout": 0.1,
          "hidden_act": "gelu", "hidden_size": 512, "intermediate_size": 2048, "layer_norm_eps": 1e-05,
          "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 8, "num_hidden_layers": 6,
          "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false, "torch_dtype": "float16",
          "use_parallel_residual": true, "vocab_size": 50304})",
                  70426624},
        Published{"Qwen25Yarn", R"({"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 3584,
          "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
          "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
          "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
          "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
          "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "use_sliding_window": false, "vocab_size": 152064})",
                  7615616512}),
    [](const auto &info) { return std::string(info.param.name); });

// Each error names the key of config.json and its value.
TEST(HfConfig, LlamaVariantsNameUnsupportedKeys) {
  Json mistral = llama();
  mistral["model_type"] = "mistral";
  mistral["architectures"] = {"MistralForCausalLM"};
  mistral.erase("head_dim");
  EXPECT_THAT(imported(mistral).yaml, HasSubstr("sliding_window: 4096  # transformers' default"));
  EXPECT_EQ(errorsOf(mistral, "sliding_window", 4), "");
  EXPECT_EQ(errorsOf(mistral, "sliding_window", nullptr), "");
  Json qwen = llama();
  qwen["model_type"] = "qwen2";
  qwen["architectures"] = {"Qwen2ForCausalLM"};
  EXPECT_EQ(errorsOf(qwen, "layer_types", {"full_attention", "full_attention"}), "");
  EXPECT_THAT(errorsOf(qwen, "layer_types", {"full_attention", "chunked_attention"}),
              HasSubstr("layer_types has no word 'chunked_attention', there are full_attention, sliding_attention"));
  EXPECT_THAT(errorsOf(qwen, "layer_types", "full_attention"), HasSubstr("wanted a list"));
  EXPECT_EQ(errorsOf(qwen, "use_sliding_window", true), "");
  Json phi = llama();
  phi["model_type"] = "phi3";
  phi["architectures"] = {"Phi3ForCausalLM"};
  EXPECT_THAT(errorsOf(phi, "rope_scaling", {{"type", "longrope"}}),
              HasSubstr("rope_scaling.type is longrope: its frequencies are lists in the file"));
  EXPECT_THAT(errorsOf(phi, "resid_pdrop", 0.1), HasSubstr("resid_pdrop is 0.1, phi3 has only 0"));
}

// A null value and a missing key have different meanings.
TEST(HfConfig, HeadDimIsSeparate) {
  Json config = llama();
  config["head_dim"] = 8;
  ImportedRun run = runOf(config);
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.model.dims.at("head_dim"), 8);
  Diagnostics diagnostics;
  EXPECT_EQ(Json::parse(hfConfigText(run, "float32", diagnostics))["head_dim"], 8);
  Json reference = config;
  reference.erase("head_dim");
  agreeingHfConfig(run, "bfloat16", "c", reference.dump(), diagnostics);
  EXPECT_THAT(diagnostics.render(), HasSubstr("head_dim is 4.0, the model has 8"));
  config["model_type"] = "mistral";
  config["architectures"] = {"MistralForCausalLM"};
  config["sliding_window"] = nullptr;
  config["num_key_value_heads"] = nullptr;
  EXPECT_THAT(imported(config).yaml, HasSubstr("n_kv_heads: 6  # num_attention_heads"));
  config.erase("num_key_value_heads");
  EXPECT_THAT(imported(config).yaml, HasSubstr("n_kv_heads: 8  # transformers' default"));
}

// Phi-3's default padding token is outside of a small vocabulary.
TEST(HfConfig, KeysWhoseDefaultMayNotFitAreCleared) {
  Json phi = llama();
  phi["model_type"] = "phi3";
  phi["architectures"] = {"Phi3ForCausalLM"};
  Diagnostics diagnostics;
  Json written = Json::parse(hfConfigText(runOf(phi), "float32", diagnostics));
  EXPECT_TRUE(written.contains("pad_token_id") && written["pad_token_id"].is_null());
}

TEST(HfConfig, KeysWithoutEffectAreReported) {
  Json config = llama();
  config["pretraining_tp"] = 1;
  config["transformers.js_config"] = {{"dtype", "q4"}};
  config["is_llama_config"] = true;
  config["rope_interleaved"] = false;
  ImportedHf hf = imported(config);
  EXPECT_EQ(hf.diagnostics.render(), "");
  std::map<std::string, bool> used;
  for (const ImportedKey &key : hf.keys)
    used[key.key] = key.isUsed;
  for (const char *key : {"pretraining_tp", "transformers.js_config", "is_llama_config", "rope_interleaved"})
    EXPECT_TRUE(used.contains(key) && !used[key]) << key;
}

// transformers 5 writes the base of rotary angles in rope_parameters.
TEST(HfConfig, RopeParameters) {
  Json config = llama();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  ImportedHf hf = imported(config);
  EXPECT_EQ(hf.diagnostics.render(), "");
  EXPECT_THAT(hf.yaml, HasSubstr("theta: 1000000.0  # rope_parameters.rope_theta"));
  config["rope_parameters"]["rope_type"] = "llama3";
  config["rope_parameters"]["factor"] = 8.0;
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  EXPECT_THAT(imported(config).yaml, HasSubstr("original_max_position: 8  # max_position_embeddings"));
  config["rope_parameters"]["original_max_position_embeddings"] = 4;
  EXPECT_EQ(imported(config).diagnostics.render(), "");
  EXPECT_THAT(imported(config).yaml, HasSubstr("original_max_position: 4"));
}

OpDescription ropeOf(const Json &config, const std::string &kind) {
  ImportedRun run = runOf(config);
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  for (const OpDescription &op : run.config.model.segment(kind).ops)
    if (op.kind == "rope")
      return op;
  return {};
}

TEST(HfConfig, ScaledRotaryPositions) {
  Json config = llama();
  EXPECT_EQ(ropeOf(config, "block").numbers.size(), 1U); // theta alone
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  OpDescription rope = ropeOf(config, "block");
  EXPECT_EQ(rope.strings.at("scaling"), "llama3");
  EXPECT_EQ(rope.numbers.at("factor"), 8);
  EXPECT_EQ(rope.numbers.at("original_context"), 64);
  EXPECT_FALSE(rope.numbers.contains("low_turns")); // the default
  Diagnostics diagnostics;
  nlohmann::json written = nlohmann::json::parse(hfConfigText(runOf(config), "bfloat16", diagnostics));
  EXPECT_EQ(written["rope_scaling"], nlohmann::json(config["rope_scaling"]));
  // A linear factor has no borders; what stands beside it is reported.
  config["rope_scaling"]["rope_type"] = "linear";
  EXPECT_EQ(ropeOf(config, "block").strings.at("scaling"), "linear");
  EXPECT_THAT(errorsOf(llama(), "rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}),
              HasSubstr("rope_scaling.rope_type is dynamic: its frequencies depend on the length of the text"));
  EXPECT_THAT(errorsOf(llama(), "rope_scaling", {{"rope_type", "lama3"}}),
              HasSubstr("rope_scaling.rope_type is lama3, llama has"));
  EXPECT_THAT(errorsOf(llama(), "rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"speed", 3}}),
              HasSubstr("rope_scaling.speed is not known for llama"));
  EXPECT_THAT(errorsOf(llama(), "rope_scaling", {{"factor", 2.0}}),
              HasSubstr("rope_scaling.factor is 2.0, and rope_scaling.rope_type is not given"));
  // A config that says another scaling than the model is another model.
  Diagnostics other;
  config["rope_scaling"]["factor"] = 4.0;
  agreeingHfConfig(runOf(llama()), "bfloat16", "c", config.dump(), other);
  EXPECT_THAT(other.render(), HasSubstr("rope_scaling.rope_type is \"linear\", the model has \"default\""));
}

// A size that config.json has no key for is not lost silently.
TEST(HfConfig, RefusesToWriteWhatNoKeySays) {
  ImportedRun run = runOf(llama());
  run.sizes.at("sliding_window").number = 4;
  Diagnostics diagnostics;
  hfConfigText(run, "float32", diagnostics);
  EXPECT_THAT(diagnostics.render(), HasSubstr("sliding_window is 4, the config.json of llama can only mean 0"));
}

Json smollm3() {
  Json config = llama();
  config["model_type"] = "smollm3";
  config["architectures"] = {"SmolLM3ForCausalLM"};
  config["num_hidden_layers"] = 6;
  config["no_rope_layers"] = {1, 1, 1, 0, 1, 1};
  return config;
}

Json exported(const Json &config) {
  Diagnostics diagnostics;
  Json written = Json::parse(hfConfigText(runOf(config), "float32", diagnostics));
  EXPECT_EQ(diagnostics.render(), "");
  return written;
}

/// Returns the runs of a model's layers: "block 3, plain 1".
std::string layersOf(const Json &config) {
  ImportedRun run = runOf(config);
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  std::string layers;
  for (size_t i = 1; i + 1 < run.config.model.runs.size(); ++i)
    layers +=
        (i > 1 ? ", " : "") + run.config.model.runs[i].kind + " " + std::to_string(run.config.model.runs[i].count);
  return layers;
}

TEST(HfConfig, LayersOfAPattern) {
  Json listed = smollm3();
  EXPECT_EQ(layersOf(listed), "block 3, plain 1, block 2");
  EXPECT_EQ(ropeOf(smollm3(), "plain").numbers.at("fraction"), 0);
  listed["no_rope_layers"] = {1, 0, 0, 1, 0, 1};
  EXPECT_EQ(layersOf(listed), "block 1, plain 2, block 1, plain 1, block 1");
  EXPECT_EQ(exported(listed)["no_rope_layers"], listed["no_rope_layers"]);
  listed.erase("no_rope_layers");
  EXPECT_EQ(layersOf(listed), "block 3, plain 1, block 2");
  EXPECT_FALSE(exported(listed).contains("no_rope_layers"));
  EXPECT_THAT(errorsOf(listed, "no_rope_layers", {1, 0}),
              HasSubstr("no_rope_layers has 2 items, wanted one for each of 6 layers"));
}

TEST(HfConfig, DeepseekV3HasALatentOfQueriesOrNone) {
  Json config = deepseek();
  ImportedHf made = imported(config);
  EXPECT_EQ(made.diagnostics.render(), "");
  EXPECT_THAT(made.yaml, AllOf(HasSubstr("type: DeepseekV3ForCausalLM"), HasSubstr("q_lora_rank: 10")));
  config["q_lora_rank"] = nullptr;
  made = imported(config);
  EXPECT_EQ(made.diagnostics.render(), "");
  EXPECT_THAT(made.yaml, HasSubstr("type: deepseek_v3_full_q"));
  EXPECT_THAT(errorsOf(deepseek(), "attention_bias", true),
              HasSubstr("attention_bias is true, deepseek_v3 has only false"));
}

TEST(HfConfig, NamesUnsupportedKeys) {
  EXPECT_THAT(errorsOf(gpt2(), "scale_attn_by_inverse_layer_idx", true),
              HasSubstr("scale_attn_by_inverse_layer_idx is true, gpt2 has only false"));
  EXPECT_THAT(errorsOf(gpt2(), "n_inner", 50),
              HasSubstr("n_inner (50) is not a multiple of n_embd (24), as gpt2 requires"));
  EXPECT_THAT(errorsOf(gpt2(), "n_emdb", 50),
              HasSubstr("n_emdb is not known for gpt2, did you mean 'n_embd'?; remove it"));
  EXPECT_THAT(errorsOf(gpt2(), "n_embd", Json::array()),
              HasSubstr("n_embd is [], wanted a number; without the key it is transformers' default, 768"));
  EXPECT_THAT(
      errorsOf(gpt2(), "architectures", {"GPT2ForSequenceClassification"}),
      HasSubstr("\"GPT2ForSequenceClassification\" is another model than GPT2LMHeadModel, which gpt2.yaml describes"));
  EXPECT_THAT(errorsOf(llama(), "rope_interleaved", true), HasSubstr("rope_interleaved is true, llama has only false"));
  Json mistral = llama();
  mistral["model_type"] = "mistral";
  mistral["architectures"] = {"MistralForCausalLM"};
  EXPECT_THAT(errorsOf(mistral, "attention_bias", true), HasSubstr("attention_bias can only be false here"));
  std::string unknown = errorsOf(llama(), "model_type", "lama");
  EXPECT_THAT(unknown, AllOf(HasSubstr("no model file is for model_type 'lama', there are "),
                             HasSubstr("did you mean 'llama'?; docs/port_a_model.md shows how")));
  for (const auto &file : std::filesystem::directory_iterator(ESPALIER_SOURCE_DIR "/configs/models"))
    if (std::ifstream in(file.path()); file.is_regular_file())
      for (std::string line; std::getline(in, line);)
        if (constexpr std::string_view key = "  model_type: ";
            line.starts_with(key) && line.find('[') == std::string::npos)
          EXPECT_THAT(unknown, HasSubstr(line.substr(key.size())));
}

TEST(HfConfig, RefusesInvalidConfigs) {
  auto says = [](const std::string &text) { return importHfConfig("c", text, configs).diagnostics.render(); };
  EXPECT_THAT(says("{"), HasSubstr("c: error: is no JSON: parse error at line 1, column 2"));
  EXPECT_THAT(says("[1]"), HasSubstr("a config.json is an object"));
  EXPECT_THAT(says(std::string(1000, '[')), HasSubstr("nested too deep"));
  EXPECT_THAT(says("{}"), HasSubstr("no model file is for model_type ''"));
}

TEST(HfConfig, WritesWhatItReads) {
  for (const Json &config : {gpt2(), llama()}) {
    ImportedRun run = runOf(config);
    ASSERT_TRUE(run.ok()) << run.diagnostics.render();
    Diagnostics diagnostics;
    std::string text = hfConfigText(run, "bfloat16", diagnostics);
    EXPECT_EQ(diagnostics.render(), "");
    Json written = Json::parse(text);
    EXPECT_EQ(written["torch_dtype"], "bfloat16");
    for (const auto &[key, value] : config.items())
      if (written.contains(key) && key != "torch_dtype")
        EXPECT_EQ(written[key], value) << key;
    EXPECT_EQ(runOf(written).config.model.parameterCount(), run.config.model.parameterCount());
  }
}

// Refuses a reference config that differs from the model, with one error per key. A different dtype is corrected
// instead.
TEST(HfConfig, AgreesWithTheModel) {
  ImportedRun run = runOf(llama());
  auto text = [&](const Json &config, const char *dtype, Diagnostics &diagnostics) {
    return agreeingHfConfig(run, dtype, "ref/config.json", config.dump(2), diagnostics);
  };
  Diagnostics none;
  EXPECT_EQ(text(llama(), "bfloat16", none), llama().dump(2));
  EXPECT_EQ(Json::parse(text(llama(), "float32", none))["torch_dtype"], "float32");
  EXPECT_EQ(none.render(), "");
  Json other = llama();
  other["num_key_value_heads"] = 3;
  other["vocab_size"] = 20;
  Diagnostics both;
  text(other, "bfloat16", both);
  EXPECT_THAT(both.render(), AllOf(HasSubstr("ref/config.json: error: num_key_value_heads is 3, the model has 2"),
                                   HasSubstr("vocab_size is 20, the model has 19")));
  other = llama();
  other["attention_bias"] = true;
  Diagnostics form;
  text(other, "bfloat16", form);
  EXPECT_THAT(form.render(), HasSubstr("attention_bias is true, the model has false"));
  Diagnostics damaged;
  agreeingHfConfig(run, "float32", "c", "[", damaged);
  EXPECT_THAT(damaged.render(), HasSubstr("is no config.json of this model"));
}

// A model file of a user may have no hf_config section.
TEST(HfConfig, ModelFilesWithoutIt) {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("espalier-hf-" + std::to_string(getpid()) + "-models");
  std::filesystem::create_directories(folder / "models");
  std::ofstream own(folder / "models/mixtral.yaml");
  std::ifstream shipped(ESPALIER_SOURCE_DIR "/configs/models/mixtral.yaml");
  for (std::string line; std::getline(shipped, line) && line != "hf_config:";)
    own << line << '\n';
  own.close();
  ImportOptions options;
  options.searchPath = {folder.string()};
  options.searchPath.insert(options.searchPath.end(), configs.begin(), configs.end());
  ImportedRun run = importRun(ESPALIER_SOURCE_DIR "/configs/mixtral_8x7b.yaml", options);
  Diagnostics diagnostics;
  EXPECT_EQ(hfConfigText(run, "float32", diagnostics), "");
  EXPECT_THAT(diagnostics.render(),
              HasSubstr("mixtral.yaml: error: has no `hf_config:`, by which a config.json is written"));
  std::filesystem::remove_all(folder);
}

// Imported experts have no capacity, under either name that transformers uses for their number.
TEST(HfConfig, ExpertsDropNoToken) {
  Json config = {{"model_type", "qwen3_moe"},
                 {"vocab_size", 19},
                 {"hidden_size", 24},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 6},
                 {"num_key_value_heads", 2},
                 {"head_dim", 6},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 12},
                 {"norm_topk_prob", true},
                 {"mlp_only_layers", Json::array()},
                 {"max_position_embeddings", 8}};
  for (const char *experts : {"num_experts", "num_local_experts"}) {
    Json named = config;
    named[experts] = 5;
    EXPECT_THAT(imported(named).yaml, HasSubstr("capacity_factor: 0  #")) << experts;
    ImportedRun run = runOf(named);
    ASSERT_TRUE(run.ok()) << run.diagnostics.render();
    EXPECT_EQ(run.config.model.dims.at("capacity"), 8);
  }
}

// The layers of mlp_only_layers are dense, and those whose number is no multiple of decoder_sparse_step.
TEST(HfConfig, ExpertsInSomeLayers) {
  for (auto [type, arch, dense, experts] : {std::tuple("qwen2_moe", "Qwen2MoeForCausalLM", "block", "experts"),
                                            std::tuple("qwen3_moe", "Qwen3MoeForCausalLM", "dense", "block")}) {
    Json config = {{"model_type", type},       {"architectures", {arch}},  {"num_hidden_layers", 5}, {"num_experts", 4},
                   {"num_experts_per_tok", 2}, {"decoder_sparse_step", 1}, {"mlp_only_layers", {1}}};
    std::string d(dense), e(experts);
    EXPECT_EQ(layersOf(config), e + " 1, " + d + " 1, " + e + " 3");
    config["decoder_sparse_step"] = 2;
    config["mlp_only_layers"] = {0, 3};
    EXPECT_EQ(layersOf(config), d + " 1, " + e + " 1, " + d + " 3");
    EXPECT_EQ(exported(config)["mlp_only_layers"], Json({0, 3}));
    EXPECT_EQ(exported(config)["decoder_sparse_step"], 2);
    config["mlp_only_layers"] = nullptr;
    EXPECT_EQ(layersOf(config), d + " 1, " + e + " 1, " + d + " 1, " + e + " 1, " + d + " 1");
    EXPECT_THAT(errorsOf(config, "mlp_only_layers", {5}), HasSubstr("mlp_only_layers has the layer 5, wanted 0 to 4"));
  }
}

// A user may pass config.json to `compile`; the error gives the right command.
TEST(HfConfig, CompileOfAConfigGivesTheRightCommand) {
  std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("espalier-hf-" + std::to_string(getpid()) + "-config.json");
  std::ofstream(file) << gpt2().dump(1);
  EXPECT_THAT(importRun(file.string()).diagnostics.render(),
              HasSubstr("`espalier import-hf " + file.string() + " -o RUN.yaml` makes it a run file"));
  std::filesystem::remove(file);
}

} // namespace
} // namespace espalier
