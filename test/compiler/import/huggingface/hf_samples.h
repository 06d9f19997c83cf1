// Small config.json of three models, and their import, for tests.
#pragma once

#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/run/import_run.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier {

using Json = nlohmann::ordered_json;
inline const std::vector<std::string> configs = {ESPALIER_SOURCE_DIR "/configs"};

inline Json gpt2() {
  return Json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 19, "n_positions": 8,
                         "n_embd": 24, "n_layer": 2, "n_head": 4, "n_inner": 48, "activation_function": "gelu_new",
                         "scale_attn_weights": true, "bos_token_id": 3, "n_ctx": 8})");
}

inline Json llama() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 19,
                         "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
                         "intermediate_size": 40, "max_position_embeddings": 8, "rope_theta": 500000.0,
                         "torch_dtype": "bfloat16", "tie_word_embeddings": true, "head_dim": 4,
                             "rope_scaling": null})");
}

inline Json deepseek() {
  return Json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 19,
                         "hidden_size": 24, "num_hidden_layers": 2, "first_k_dense_replace": 2,
                         "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 12,
                         "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 10, "intermediate_size": 40,
                         "max_position_embeddings": 8})");
}

inline ImportedHf imported(const Json &config) { return importHfConfig("config.json", config.dump(1), configs); }

inline std::string errorsOf(Json config, const std::string &key, const Json &value) {
  config[key] = value;
  return imported(config).diagnostics.render();
}

/// Imports the run file that a config.json becomes.
inline ImportedRun runOf(const Json &config) {
  std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("espalier-hf-" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << imported(config).yaml;
  ImportOptions options;
  options.searchPath = configs;
  ImportedRun run = importRun(file.string(), options);
  std::filesystem::remove(file);
  return run;
}

} // namespace espalier
