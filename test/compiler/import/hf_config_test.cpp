// config.json of transformers as a run file and back: each key is a size, has the one value, changes nothing, or is an
// error.
#include "compiler/import/hf_config.h"

#include "gmock/gmock.h"
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<std::string> configs = {ESPALIER_SOURCE_DIR "/configs"};

Json gpt2() {
  return Json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 19, "n_positions": 8,
                         "n_embd": 24, "n_layer": 2, "n_head": 4, "n_inner": 48, "activation_function": "gelu_new",
                         "scale_attn_weights": true, "bos_token_id": 3, "n_ctx": 8})");
}

Json llama() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 19,
                         "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
                         "intermediate_size": 40, "max_position_embeddings": 8, "rope_theta": 500000.0,
                         "torch_dtype": "bfloat16", "tie_word_embeddings": true, "head_dim": 4, "rope_scaling": null})");
}

ImportedHf imported(const Json &config) { return importHfConfig("config.json", config.dump(1), configs); }

std::string errorsOf(Json config, const std::string &key, const Json &value) {
  config[key] = value;
  return imported(config).diagnostics.render();
}

/// The run that a config.json becomes.
ImportedRun runOf(const Json &config) {
  std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("espalier-hf-" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << imported(config).yaml;
  ImportOptions options;
  options.searchPath = configs;
  ImportedRun run = importRun(file.string(), options);
  std::filesystem::remove(file);
  return run;
}

TEST(HfConfig, Gpt2) {
  ImportedHf hf = imported(gpt2());
  EXPECT_EQ(hf.diagnostics.render(), "");
  EXPECT_THAT(hf.yaml, AllOf(HasSubstr("type: GPT2LMHeadModel"), HasSubstr("seq_length: 8  # n_positions"),
                             HasSubstr("max_position_embeddings: 8"), HasSubstr("expand_ratio: 2  # n_inner"),
                             HasSubstr("layernorm_epsilon: 1e-5  # transformers' default"),
                             HasSubstr("param_init_type: float32"), HasSubstr("hidden_act: gelu_new")));
  std::map<std::string, bool> used;
  for (const HfKeyReport &key : hf.keys)
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

// The published models, as their folders say it.
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

// As transformers 5 writes the base of its angles.
TEST(HfConfig, RopeParameters) {
  Json config = llama();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  ImportedHf hf = imported(config);
  EXPECT_EQ(hf.diagnostics.render(), "");
  EXPECT_THAT(hf.yaml, HasSubstr("theta: 1000000.0  # rope_parameters.rope_theta"));
  config["rope_parameters"]["rope_type"] = "llama3";
  EXPECT_THAT(imported(config).diagnostics.render(),
              HasSubstr("rope_parameters.rope_type is \"llama3\", llama has only default"));
}

TEST(HfConfig, NamesWhatItCannotExpress) {
  EXPECT_THAT(errorsOf(gpt2(), "scale_attn_by_inverse_layer_idx", true),
              HasSubstr("scale_attn_by_inverse_layer_idx is true, gpt2 has only false"));
  EXPECT_THAT(errorsOf(gpt2(), "n_inner", 50),
              HasSubstr("n_inner (50) is not a multiple of n_embd (24), which gpt2 wants"));
  EXPECT_THAT(errorsOf(gpt2(), "n_emdb", 50),
              HasSubstr("n_emdb is not known for gpt2, did you mean 'n_embd'?; remove it"));
  EXPECT_THAT(errorsOf(gpt2(), "n_embd", Json::array()),
              HasSubstr("n_embd must be a number, a string or a truth value"));
  EXPECT_THAT(
      errorsOf(gpt2(), "architectures", {"GPT2ForSequenceClassification"}),
      HasSubstr("\"GPT2ForSequenceClassification\" is another model than GPT2LMHeadModel, which gpt2.yaml describes"));
  EXPECT_THAT(
      errorsOf(llama(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}),
      HasSubstr(
          "config.json:17:2: error: rope_scaling is {\"rope_type\":\"llama3\",\"factor\":8}, llama has only null"));
  EXPECT_THAT(errorsOf(llama(), "head_dim", 8),
              HasSubstr("head_dim is 8, llama has only hidden_size / num_attention_heads"));
  EXPECT_THAT(errorsOf(llama(), "attention_bias", true), HasSubstr("attention_bias is true, llama has only false"));
  EXPECT_THAT(errorsOf(llama(), "model_type", "lama"),
              AllOf(HasSubstr("no model file is for model_type 'lama', there are gpt2, llama, mixtral, qwen3_moe"),
                    HasSubstr("did you mean 'llama'?")));
}

TEST(HfConfig, RefusesWhatIsNoConfig) {
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

// A reference that says something else of the model is refused, key by key; another type is put right.
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
  other["rope_scaling"] = {{"rope_type", "llama3"}};
  Diagnostics form;
  text(other, "bfloat16", form);
  EXPECT_THAT(form.render(), HasSubstr("rope_scaling is {\"rope_type\":\"llama3\"}, llama has only null"));
  Diagnostics damaged;
  agreeingHfConfig(run, "float32", "c", "[", damaged);
  EXPECT_THAT(damaged.render(), HasSubstr("is no config.json of this model"));
}

// A model file of the user's own may have none.
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

// As many slots as tokens follow from the numbers of experts, whatever transformers' version calls them.
TEST(HfConfig, ExpertsLeaveNoTokenOut) {
  Json config = {{"model_type", "qwen3_moe"}, {"vocab_size", 19},        {"hidden_size", 24},
                 {"num_hidden_layers", 2},    {"num_attention_heads", 6}, {"num_key_value_heads", 2},
                 {"head_dim", 6},             {"num_experts_per_tok", 2}, {"moe_intermediate_size", 12},
                 {"norm_topk_prob", true},    {"mlp_only_layers", Json::array()}, {"max_position_embeddings", 8}};
  for (const char *experts : {"num_experts", "num_local_experts"}) {
    Json named = config;
    named[experts] = 5;
    EXPECT_THAT(imported(named).yaml, HasSubstr("capacity_factor: 2.5")) << experts;
    ImportedRun run = runOf(named);
    ASSERT_TRUE(run.ok()) << run.diagnostics.render();
    EXPECT_EQ(run.config.model.dims.at("capacity"), 8);
  }
  EXPECT_THAT(errorsOf(config, "mlp_only_layers", {1}), HasSubstr("mlp_only_layers is [1], qwen3_moe has only []"));
  EXPECT_THAT(errorsOf(config, "decoder_sparse_step", 2), HasSubstr("decoder_sparse_step is 2, qwen3_moe has only 1"));
}

// What a user tries first.
TEST(HfConfig, CompileOfAConfigSaysWhatToDo) {
  std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("espalier-hf-" + std::to_string(getpid()) + "-config.json");
  std::ofstream(file) << gpt2().dump(1);
  EXPECT_THAT(importRun(file.string()).diagnostics.render(),
              HasSubstr("`espalier import-hf " + file.string() + " -o RUN.yaml` makes it a run file"));
  std::filesystem::remove(file);
}

} // namespace
} // namespace espalier
