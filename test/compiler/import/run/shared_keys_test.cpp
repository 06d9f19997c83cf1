// Keys of MindFormers that every model knows, keys without effect, and the sections of its newest trainer.
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
using testing::Not;

const std::string modelConfig = "model.model_config.";

ImportedRun shipped(const std::string &config, std::vector<std::string> sets) {
  ImportOptions options;
  options.sets = std::move(sets);
  return importRun(ESPALIER_SOURCE_DIR "/configs/" + config + ".yaml", options);
}

std::string findingsOf(const std::string &config, std::vector<std::string> sets) {
  return shipped(config, std::move(sets)).diagnostics.render();
}

/// Imports a run file of its text alone.
ImportedRun imported(const std::string &text, std::vector<std::string> sets = {}) {
  const fs::path file = fs::temp_directory_path() / fmt::format("espalier-shared-keys-{}.yaml", getpid());
  std::ofstream(file) << text;
  ImportOptions options;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
  options.sets = std::move(sets);
  ImportedRun run = importRun(file, options);
  fs::remove(file);
  return run;
}

KeyReport reportOf(const ImportedRun &run, const std::string &key) {
  for (const KeyReport &report : run.keys)
    if (report.key == key)
      return report;
  ADD_FAILURE() << key << " is not reported";
  return {};
}

TEST(SharedKeys, KeysWithoutEffectAreAcceptedWithTheReason) {
  const std::string data = "train_dataset.";
  for (const std::string &set : {std::string("callbacks=[{type: MFLossMonitor, per_print_step: 5}]"),
                                 std::string("train_precision_sync=True"),
                                 std::string("infer_precision_sync=True"),
                                 std::string("ignore_data_skip=False"),
                                 std::string("data_skip_steps=0"),
                                 std::string("transform_process_num=16"),
                                 std::string("use_graceful_exit=True"),
                                 std::string("monitor_config={monitor_on: True, dump_path: ./dump}"),
                                 std::string("checkpoint_config={prefix: a, save_checkpoint_steps: 5}"),
                                 std::string("profile_pipeline=False"),
                                 std::string("moe_config.ep_extend_tp=True"),
                                 modelConfig + "use_incre_flash_attention=False",
                                 modelConfig + "use_ring_attention=True",
                                 modelConfig + "pet_config={pet_type: lora, lora_rank: 8, lora_alpha: 16, "
                                               "target_modules: '.*wq', in_channels: 8, out_channels: 8}",
                                 data + "output_columns=[input_ids, labels]",
                                 data + "tokenizer={type: LlamaTokenizer, vocab_file: a.model, add_bos_token: True}",
                                 data + "data_loader.create_attention_mask=True",
                                 data + "data_loader.create_compressed_eod_mask=False",
                                 data + "data_loader.compressed_eod_mask_length=128",
                                 data + "data_loader.config.compressed_eod_mask_length=128",
                                 data + "data_loader.use_broadcast_data=True",
                                 data + "data_loader.config.use_broadcast_data=True"}) {
    ImportedRun run = shipped("llama2_7b", {set});
    EXPECT_EQ(run.diagnostics.render(), "") << set;
  }
  ImportedRun run = shipped("llama2_7b", {"callbacks=[{type: MFLossMonitor, per_print_step: 5}]"});
  KeyReport report = reportOf(run, "callbacks[0].per_print_step");
  EXPECT_EQ(report.action, KeyAction::Accepted);
  EXPECT_EQ(report.effect, "callbacks watch a run and do not change it");
  EXPECT_THAT(findingsOf("llama2_7b", {"trainn_precision_sync=True"}),
              HasSubstr("did you mean 'train_precision_sync'?"));
}

TEST(SharedKeys, KeysThatTurnSomethingOnAreRefused) {
  for (auto [set, reason] : {std::pair("ignore_data_skip=True", "a resumed run continues behind the data"),
                             {"data_skip_steps=7", "a resumed run continues behind the data"},
                             {"use_checkpoint_health_monitor=True", "does not go back to an older checkpoint"}})
    EXPECT_THAT(findingsOf("llama2_7b", {set}), HasSubstr(reason)) << set;
  EXPECT_THAT(findingsOf("llama2_7b", {"train_dataset.data_loader.create_compressed_eod_mask=True"}),
              HasSubstr("create_compressed_eod_mask needs the token that ends a document"));
}

// The names of properties hold in every model file, with the value that its architecture has.
TEST(SharedKeys, NamesOfOneModelHoldInAll) {
  const std::vector<std::string> inert = {"moe_grouped_gemm=True",
                                          "moe_token_drop_policy=probs",
                                          "moe_token_dispatcher_type=alltoall",
                                          "qkv_concat=True",
                                          "compute_in_2d=True",
                                          "fine_grain_interleave=2",
                                          "fp32_residual_connection=False",
                                          "use_contiguous_weight_layout_attention=False"};
  const std::vector<std::string> ofBlocks = {"gated_linear_unit=True",       "add_bias_linear=False",
                                             "position_embedding_type=rope", "normalization=RMSNorm",
                                             "hidden_dropout=0.0",           "attention_dropout=0.0"};
  const std::vector<std::string> ofExperts = {
      "moe_router_pre_softmax=True", "routed_scaling_factor=1.0",
      "moe_aux_loss_coeff=0.001",    "moe_router_load_balancing_type=seq_aux_loss",
      "tie_word_embeddings=False",   "qk_layernorm=True"};
  for (const char *config : {"tiny_gpt", "llama2_7b", "mixtral_8x7b", "qwen3_30b_a3b"})
    for (const std::string &set : inert)
      EXPECT_EQ(findingsOf(config, {modelConfig + set}), "") << config << " " << set;
  for (const char *config : {"llama2_7b", "mixtral_8x7b", "qwen3_30b_a3b"})
    for (const std::string &set : ofBlocks)
      EXPECT_EQ(findingsOf(config, {modelConfig + set}), "") << config << " " << set;
  for (const std::string &set : ofExperts)
    EXPECT_EQ(findingsOf("qwen3_30b_a3b", {modelConfig + set}), "") << set;
  for (const char *set : {"gated_linear_unit=False", "add_bias_linear=True", "position_embedding_type=learned_absolute",
                          "normalization=LayerNorm"})
    EXPECT_EQ(findingsOf("tiny_gpt", {modelConfig + set}), "") << set;
}

TEST(SharedKeys, OtherValuesOfSharedNamesAreRefused) {
  for (auto [config, set, reason] :
       {std::tuple("qwen3_30b_a3b", "routed_scaling_factor=1.5", "routed_scaling_factor can only be 1 here"),
        {"qwen3_30b_a3b", "gated_linear_unit=False", "gated_linear_unit can only be true here"},
        {"qwen3_30b_a3b", "hidden_dropout=0.1", "hidden_dropout can only be 0 here: there is no dropout"},
        {"qwen3_30b_a3b", "normalization=LayerNorm", "normalization has no choice 'LayerNorm', there are RMSNorm"},
        {"mixtral_8x7b", "qk_layernorm=True", "qk_layernorm can only be false here"},
        {"tiny_gpt", "gated_linear_unit=True", "gated_linear_unit can only be false here"},
        {"tiny_gpt", "position_embedding_type=rope", "there are learned_absolute"}}) {
    ImportedRun run = shipped(config, {modelConfig + set});
    EXPECT_THAT(run.diagnostics.render(), HasSubstr(reason)) << set;
    EXPECT_TRUE(run.ok()) << "a refusal stops a compilation, not a plan: " << set;
  }
  EXPECT_THAT(
      findingsOf("qwen3_30b_a3b", {modelConfig + "moe_router_pre_softmax=False", modelConfig + "norm_topk_prob=False"}),
      HasSubstr("moe_router_pre_softmax can only be"));
  EXPECT_THAT(findingsOf("qwen3_30b_a3b", {modelConfig + "moe_router_load_balancing_type=gbs_aux_loss"}),
              HasSubstr("warning: each sample is balanced, as by seq_aux_loss, not as by gbs_aux_loss"));
  // Two names of a size may have the same value.
  EXPECT_EQ(
      findingsOf("qwen3_30b_a3b", {modelConfig + "router_aux_loss_coef=0.01", modelConfig + "moe_aux_loss_coeff=0.01"}),
      "");
  EXPECT_THAT(
      findingsOf("qwen3_30b_a3b", {modelConfig + "router_aux_loss_coef=0.01", modelConfig + "moe_aux_loss_coeff=0.02"}),
      HasSubstr("mean the same, keep one of them"));
}

const std::string trainer =
    "use_parallel: True\ncluster: h100_dgx:2x8\n"
    "checkpoint_config:\n  load_checkpoint: ''\n  prefix: llm_model\n  save_checkpoint_steps: 100\n"
    "training_args:\n  epochs: 1\n  micro_batch_size: 2\n  global_batch_size: 64\n  training_seed: 7\n"
    "  dataset_seed: 9\n  stop_step: null\n  resume_training: False\n"
    "lr_schedule:\n  type: ConstantWarmUpLR\n  learning_rate: 1.e-6\n"
    "distribute_parallel_config:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n"
    "  context_parallel_size: 1\n  cp_comm_type: all_gather\n  sequence_parallel: True\n"
    "  pipeline_parallel_config:\n    pipeline_interleave: True\n    pipeline_scheduler: 1f1b\n"
    "    virtual_pipeline_model_parallel_size: 2\n    pipeline_stage_offset: 0\n"
    "  optimizer_parallel_config:\n    enable_parallel_optimizer: True\n    optimizer_level: level1\n"
    "  micro_batch_interleave_num: 1\n"
    "parallel:\n  parallel_mode: 1\n"
    "model_config:\n  model_type: qwen3\n  architectures: Qwen3ForCausalLM\n  seq_length: 128\n  vocab_size: 512\n"
    "  hidden_size: 64\n  intermediate_size: 128\n  num_hidden_layers: 8\n  num_attention_heads: 4\n"
    "  num_key_value_heads: 2\n  head_dim: 16\n  params_dtype: float32\n  compute_dtype: bfloat16\n"
    "  layernorm_compute_dtype: float32\n  softmax_compute_dtype: float32\n  rotary_dtype: float32\n";

TEST(TrainerFormat, KeysOfTheNewestTrainerAreTranslated) {
  ImportedRun run = imported(trainer);
  ASSERT_EQ(run.diagnostics.render(), "");
  const planner::Pins &pins = run.config.pins;
  EXPECT_EQ(run.config.model.name, "qwen3");
  EXPECT_EQ(run.config.model.layerCount(), 8);
  EXPECT_EQ(run.config.globalBatch, 64);
  EXPECT_EQ(run.config.seed, 7u);
  EXPECT_EQ(run.config.data.seed(), 9u);
  EXPECT_TRUE(run.config.optimizer.clip);
  EXPECT_EQ(pins.dp, 4); // 16 devices, tp 2 and pp 2
  EXPECT_EQ(pins.tp, 2);
  EXPECT_EQ(pins.pp, 2);
  EXPECT_EQ(pins.microBatchSize, 2);
  EXPECT_EQ(pins.microBatches, 8);
  EXPECT_EQ(pins.virtualStages, 2);
  EXPECT_EQ(pins.zero, 1);
  EXPECT_TRUE(*pins.sequenceParallel);
  EXPECT_FALSE(imported(trainer, {"training_args.use_clip_grad=False"}).config.optimizer.clip);
}

// The data give the length of a sample if the model does not.
TEST(TrainerFormat, SamplesHaveTheLengthOfTheData) {
  std::string text = trainer;
  text.replace(text.find("  seq_length: 128\n"), 18, "");
  ImportedRun run = imported(text + "train_dataset:\n  data_loader:\n    config:\n      seq_length: 256\n");
  EXPECT_EQ(run.diagnostics.render(), "");
  EXPECT_EQ(run.config.model.dims.at("seq"), 256);
  run = shipped("llama2_7b", {modelConfig + "seq_length=64", "train_dataset.data_loader.config.seq_length=32"});
  EXPECT_THAT(run.diagnostics.render(), HasSubstr("data have 32 tokens per sample, the model has seq_length 64"));
}

TEST(TrainerFormat, OtherKeysAreRefusedOneByOne) {
  for (auto [set, reason] :
       {std::pair("training_args.stop_step=10", "a run has as many steps as `espalier run --steps N`"),
        {"training_args.gradient_accumulation_steps=2", "follow from global_batch_size and micro_batch_size"},
        {"training_args.use_skip_data_by_global_norm=True", "runner_wrapper.skip_spike_factor"},
        {"training_args.data_skip_steps=5", "a resumed run continues behind the data"},
        {"distribute_parallel_config.optimizer_parallel_config.optimizer_level=level3",
         "parallel_optimizer_comm_recompute"},
        {"training_args.micro_batchsize=2", "unknown key 'micro_batchsize' in training_args"},
        {"training_args.global_batch_size=63", "global_batch is 63, the pinned plan has"},
        {"runner_config.batch_size=2", "mean the same, keep one of them"}}) {
    std::string findings = imported(trainer, {set}).diagnostics.render();
    EXPECT_THAT(findings, HasSubstr(reason)) << set;
  }
}

} // namespace
} // namespace espalier
