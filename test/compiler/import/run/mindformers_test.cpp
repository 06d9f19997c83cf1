// Keys of MindFormers' files from r0.6 to r1.8. Each key is used, reported as without effect, or refused with the
// reason. The architecture in a file selects the model file.
#include "compiler/import/run/import_run.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class MindFormers : public testing::Test {
protected:
  MindFormers() { fs::create_directories(place); }
  ~MindFormers() override { fs::remove_all(place); }

  /// Imports a tiny Llama in bfloat16, in the form of a shipped file, with additional settings.
  ImportedRun llama(const std::vector<std::string> &sets) const {
    return imported(
        "model:\n  arch:\n    type: LlamaForCausalLM\n  model_config:\n    type: LlamaConfig\n"
        "    seq_length: 16\n    hidden_size: 64\n    num_layers: 4\n    num_heads: 4\n    vocab_size: 256\n"
        "    compute_dtype: bfloat16\n    param_init_type: float16\n",
        sets);
  }

  ImportedRun imported(const std::string &model, const std::vector<std::string> &sets) const {
    std::string file = place / "run.yaml";
    std::ofstream(file) << model
                        << "runner_config:\n  batch_size: 1\nparallel:\n  parallel_mode: 1\nparallel_config:\n"
                           "  data_parallel: 2\ncluster: cpu_local:1x2\nlr_schedule:\n  learning_rate: 1.e-5\n";
    ImportOptions options;
    options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
    options.sets = sets;
    return importRun(file, options);
  }

  static KeyReport reportOf(const ImportedRun &run, const std::string &key) {
    for (const KeyReport &report : run.keys)
      if (report.key == key)
        return report;
    ADD_FAILURE() << key << " is not reported";
    return {};
  }

  const fs::path place = fs::temp_directory_path() / fmt::format("espalier-mindformers-{}", getpid());
};

const std::string modelConfig = "model.model_config.";

TEST_F(MindFormers, KeysWithoutEffectAreAcceptedWithTheReason) {
  for (const char *set : {"runner_wrapper.enable_check_overflow=False",
                          "model.model_config.block_size=16",
                          "model.model_config.num_blocks=512",
                          "model.model_config.num_block=512",
                          "model.model_config.is_dynamic=True",
                          "model.model_config.use_past_shard=False",
                          "model.model_config.pretrain_seqlen=2048",
                          "model.model_config.auto_map={AutoTokenizer: [a.B, null]}",
                          "model.model_config.eos_token_id=[151645, 151643]",
                          "recompute_config.select_comm_recompute={'.*\\.norm': [6, 2]}",
                          "parallel.auto_pipeline=False",
                          "model.arch.auto_register=a.B",
                          "model.model_config.auto_register=a.B",
                          "model.model_config.router_dense_type=float32",
                          "model.model_config.use_fused_swiglu=True",
                          "model.model_config.use_fused_rope=True",
                          "model.model_config.return_extra_loss=True",
                          "train_dataset.data_loader.config.num_dataset_builder_threads=1",
                          "processor.image_processor={type: a}",
                          "use_legacy=False",
                          "print_separate_loss=True",
                          "profiler_level=1",
                          "parallel_config.seq_split_num=1"}) {
    ImportedRun run = llama({set});
    EXPECT_EQ(run.diagnostics.render(), "") << set;
    std::string key = std::string(set).substr(0, std::string(set).find('='));
    EXPECT_EQ(reportOf(run, key).action, KeyAction::Accepted) << set;
    EXPECT_NE(reportOf(run, key).effect, "") << set;
  }
}

TEST_F(MindFormers, LearningRateMayEndWhereItBegins) {
  ImportedRun run = llama({"lr_schedule.type=CosineWithWarmUpLR", "lr_schedule.lr_end=1.e-5"});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.schedule.end(), run.config.schedule.peak());
}

// Files in bfloat16 may have any scale_factor, because it is ignored. A fixed loss scale has no scale_factor.
TEST_F(MindFormers, LossScaleIsReadForFloat16) {
  const std::string scale = "runner_wrapper.scale_sense={type: DynamicLossScaleUpdateCell, loss_scale_value: 4096, "
                            "scale_factor: 1, scale_window: 100000}";
  ImportedRun run = llama({scale});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.lossScale.initial, 1);
  EXPECT_EQ(reportOf(run, "runner_wrapper.scale_sense.scale_factor").action, KeyAction::Accepted);
  EXPECT_THAT(llama({scale, modelConfig + "compute_dtype=float16"}).diagnostics.render(),
              HasSubstr("scale_factor is 1, must be above 1"));
  run = llama({"runner_wrapper.scale_sense={type: FixedLossScaleUpdateCell, loss_scale_value: 8, scale_factor: 1}",
               modelConfig + "compute_dtype=float16"});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.lossScale.initial, 8);
}

TEST_F(MindFormers, TheTokenTableHasTheTypeOfAllParameters) {
  ImportedRun run = llama({modelConfig + "embedding_init_type=bfloat16"});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_THAT(reportOf(run, modelConfig + "embedding_init_type").effect,
              HasSubstr("the token table has param_init_type, float16"));
  EXPECT_THAT(llama({modelConfig + "embedding_init_type=float32"}).diagnostics.render(),
              HasSubstr("param_init_type float16, not float32; embedding_init_type: float32 → float16"));
  EXPECT_THAT(llama({modelConfig + "embedding_init_type=int8"}).diagnostics.render(), HasSubstr("no type 'int8'"));
}

TEST_F(MindFormers, SeedOfTheDataset) {
  EXPECT_EQ(llama({"train_dataset.seed=7"}).config.data.seed(), 7U);
  EXPECT_EQ(llama({"train_dataset.seed=7", "train_dataset.data_loader.config.seed=8"}).config.data.seed(), 8U);
  EXPECT_EQ(llama({"train_dataset.seed=7", "train_dataset.data_loader.config.random_seed=9"}).config.data.seed(), 9U);
}

TEST_F(MindFormers, MissingFeaturesAreRefused) {
  EXPECT_THAT(llama({modelConfig + "quantization_config={quant_method: rtn}"}).diagnostics.render(),
              AllOf(HasSubstr("warning: quantized weights are not built"), HasSubstr("; remove quantization_config")));
  for (auto [set, reason] :
       {std::pair("moe_config.shared_expert_num=1", "this architecture has no shared experts, glm4_moe has; "
                                                    "shared_expert_num: 1 → 0"),
        {"moe_config.balance_via_topk_bias=True", "balance_via_topk_bias: True → false"},
        {"moe_config.routed_scaling_factor=2.5", "routed_scaling_factor: 2.5 → 1"},
        {"moe_config.aux_loss_factors=[0.1]",
         "the balancing loss has one weight, aux_loss_factor; remove aux_loss_factors"},
        {"moe_config.topk_method=group_limited_greedy", "topk_method: group_limited_greedy → greedy"}})
    EXPECT_THAT(llama({"moe_config.expert_num=4", set}).diagnostics.render(), HasSubstr(reason));
  EXPECT_EQ(llama({"moe_config.expert_num=4", "moe_config.shared_expert_num=0", "moe_config.z_loss_factor=0.0",
                   "moe_config.balance_via_topk_bias=False", "moe_config.topk_method=greedy"})
                .diagnostics.render(),
            "");
  EXPECT_THAT(llama({modelConfig + "fp32_residual_connection=True"}).diagnostics.render(),
              HasSubstr("fp32_residual_connection can only be false here: the residual stream has compute_dtype"));
}

TEST_F(MindFormers, LlamaWithExpertsIsMixtral) {
  ImportedRun run =
      llama({"moe_config.expert_num=8", "moe_config.num_experts_chosen=2", "moe_config.capacity_factor=1.1",
             "moe_config.routing_policy=TopkRouterV2", "moe_config.enable_sdrop=True",
             modelConfig + "intermediate_size=96", modelConfig + "multiple_of=256"});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.model.name, "mixtral");
  EXPECT_EQ(run.config.model.dims.at("expert"), 8);
  EXPECT_EQ(run.config.model.dims.at("capacity"), 5); // ceil(1.1 * 16 * 2 / 8)
  EXPECT_EQ(run.config.model.dims.at("kv_heads"), 4); // Llama's defaults, not Mixtral's
  EXPECT_EQ(run.config.model.dims.at("ffn_expert"), 96);
  EXPECT_EQ(llama({"moe_config.expert_num=8", "moe_config.num_experts_chosen=2"}).config.model.dims.at("ffn_expert"),
            256);
  EXPECT_EQ(llama({"moe_config.expert_num=1"}).config.model.name, "llama");
  run = llama({"moe_config.expert_num=8", "moe_config.num_experts_chosen=2", "moe_config.capacity_factor=-1"});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.model.dims.at("capacity"), 16);
  EXPECT_THAT(reportOf(run, "moe_config.capacity_factor").effect, HasSubstr("no token is dropped"));
  run = llama({"moe_config.expert_num=8", "moe_config.num_experts_chosen=2", "moe_config.capacity_factor=abc"});
  EXPECT_EQ(run.diagnostics.render(), "--set: error: capacity_factor must be a number, got abc\n") << "once";
}

TEST_F(MindFormers, LlamaWithBiasesIsQwen2) {
  ImportedRun run =
      llama({modelConfig + "qkv_has_bias=True", modelConfig + "emb_dropout_prob=0.0", modelConfig + "rotary_pct=1.0",
             modelConfig + "theta=1000000.0", modelConfig + "rotary_emb_base=1000000", modelConfig + "kv_channels=16",
             modelConfig + "intermediate_size=96"});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.model.name, "qwen2");
  EXPECT_EQ(llama({modelConfig + "qkv_has_bias=False"}).config.model.name, "llama");
  EXPECT_THAT(llama({modelConfig + "qkv_has_bias=True", modelConfig + "kv_channels=8"}).diagnostics.render(),
              HasSubstr("kv_channels can only be"));
}

// Since r1.6, files use the names of transformers and have no arch section.
TEST_F(MindFormers, ArchitecturesChooseTheModel) {
  const std::string sizes =
      "    seq_length: 16\n    hidden_size: 64\n    intermediate_size: 96\n"
      "    num_hidden_layers: 2\n    num_attention_heads: 4\n    num_key_value_heads: 2\n"
      "    head_dim: 32\n    vocab_size: 256\n    hidden_act: swiglu\n    rope_theta: 1000000.\n"
      "    params_dtype: float32\n    compute_dtype: bfloat16\n"
      "    layernorm_compute_dtype: float32\n    qk_layernorm: True\n"
      "    untie_embeddings_and_output_weights: True\n    tie_word_embeddings: False\n"
      "    position_embedding_type: rope\n    add_bias_linear: False\n    input_sliced_sig: True\n";
  for (const char *name :
       {"architectures: [Qwen3ForCausalLM]\n    model_type: llama", "model_type: qwen3", "type: Qwen3Config"}) {
    ImportedRun run = imported(fmt::format("model:\n  model_config:\n    {}\n{}", name, sizes), {});
    EXPECT_EQ(run.diagnostics.render(), "") << name;
    EXPECT_EQ(run.config.model.name, "qwen3") << name;
    EXPECT_EQ(run.config.model.dims.at("head_dim"), 32) << name;
    EXPECT_EQ(run.config.model.layerCount(), 2) << name;
  }
  EXPECT_THAT(
      imported("model:\n  model_config:\n    architectures: [Qwen9ForCausalLM]\n" + sizes, {}).diagnostics.render(),
      HasSubstr("no model file has arch 'Qwen9ForCausalLM'"));
  EXPECT_THAT(imported("model:\n  model_config:\n    model_type: qwen3\n" + sizes,
                       {modelConfig + "untie_embeddings_and_output_weights=False"})
                  .diagnostics.render(),
              HasSubstr("untie_embeddings_and_output_weights can only be 1 - tie_word_embeddings here"));
}

// config.json in pretrained_model_dir gives the sizes, and sizes in the run file override them. The dataset gives the
// sequence length.
TEST_F(MindFormers, PretrainedModelDirGivesTheSizes) {
  const std::string file = "pretrained_model_dir: hf\nmodel:\n  model_config:\n    params_dtype: float32\n"
                           "    compute_dtype: bfloat16\n    num_hidden_layers: 3\n";
  EXPECT_THAT(imported(file, {}).diagnostics.render(),
              HasSubstr("run.yaml:1:23: error: pretrained_model_dir 'hf' has no config.json here"));
  fs::create_directories(place / "hf");
  std::ofstream(place / "hf/config.json")
      << R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 256, "hidden_size": 64,
             "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 32, "max_position_embeddings": 64, "torch_dtype": "bfloat16"})";
  ImportedRun run = imported(file, {});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.model.name, "qwen3");
  EXPECT_EQ(run.config.model.layerCount(), 3);
  EXPECT_EQ(run.config.model.dims.at("seq"), 64);
  EXPECT_EQ(run.config.dtypes.parameters, DType::F32);
  run = imported(file, {"train_dataset.data_loader.config.seq_length=16"});
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.model.dims.at("seq"), 16);
  std::ofstream(place / "hf/config.json") << R"({"model_type": "qwen3", "rope_interleaved": true})";
  EXPECT_THAT(imported(file, {}).diagnostics.render(), HasSubstr("rope_interleaved is true, qwen3 has only false"));
}

} // namespace
} // namespace espalier
