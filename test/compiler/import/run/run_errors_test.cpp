// Tests the error of each wrong value in a run file, with tiny_gpt as base.
#include "compiler/import/run/import_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ImportedRun tiny(std::vector<std::string> sets, const std::string &cluster = "") {
  ImportOptions options;
  options.sets = std::move(sets);
  options.cluster = cluster;
  return importRun(ESPALIER_SOURCE_DIR "/configs/tiny_gpt.yaml", options);
}

struct Fault {
  std::vector<std::string> sets;
  std::string text;
};
class RunFault : public testing::TestWithParam<Fault> {};

TEST_P(RunFault, IsReported) {
  ImportedRun run = tiny(GetParam().sets);
  EXPECT_FALSE(run.ok());
  EXPECT_THAT(run.diagnostics.render(), HasSubstr("error: "));
  EXPECT_THAT(run.diagnostics.render(), HasSubstr(GetParam().text));
}

/// Returns the errors of a model of the equivalence suite with QK-clip.
std::string clipErrors(const std::string &model, std::vector<std::string> sets = {}) {
  ImportOptions options;
  options.sets = std::move(sets);
  options.sets.emplace_back("optimizer.qk_clip_threshold=100");
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs", ESPALIER_SOURCE_DIR "/test/equivalence"};
  std::string file = ESPALIER_SOURCE_DIR "/test/equivalence/" + model + ".yaml";
  return importRun(file, options).diagnostics.render();
}

// QK-clip scales the weights of queries and keys, so it needs attention whose scores scale with them.
TEST(ModelFault, QkClipNeedsScoresThatScaleWithTheWeights) {
  for (const char *model : {"gpt2", "llama", "mixtral", "qwen2_moe", "gpt_neox"})
    EXPECT_EQ(clipErrors(model), "") << model;
  const std::string cannot = "error: cannot clip the attention of segment ";
  for (const char *model : {"qwen3_moe", "olmo2"})
    EXPECT_THAT(clipErrors(model),
                AllOf(HasSubstr(cannot), HasSubstr("the result of a norm, which removes the scale of "
                                                   "the weight; leave optimizer.qk_clip_threshold out")))
        << model;
  EXPECT_THAT(clipErrors("gemma2"), AllOf(HasSubstr(cannot), HasSubstr("a soft cap limits its scores to")));
  EXPECT_THAT(clipErrors("deepseek_v3"), AllOf(HasSubstr(cannot), HasSubstr("is not the product of one weight for all "
                                                                            "heads")));
  EXPECT_THAT(clipErrors("llama", {"model.model_config.pet_config={pet_type: lora, lora_rank: 2, lora_alpha: 4, "
                                   "target_modules: '.*wq'}"}),
              AllOf(HasSubstr(cannot), HasSubstr("; leave optimizer.qk_clip_threshold out")));
}

// MindFormers' Muon turns QK-clip on by a key of its own, with a threshold of 100.
TEST(RunFile, QkClipIsEnabledByItsKey) {
  ImportOptions options;
  auto threshold = [&](std::vector<std::string> sets) {
    options.sets = std::move(sets);
    ImportedRun run = importRun(ESPALIER_SOURCE_DIR "/configs/tiny_gpt.yaml", options);
    EXPECT_TRUE(run.ok()) << run.diagnostics.render();
    return run.config.optimizer.qkClipThreshold;
  };
  EXPECT_EQ(threshold({}), 0);
  EXPECT_EQ(threshold({"optimizer.qk_clip_enabled=True"}), 100);
  EXPECT_EQ(threshold({"optimizer.qk_clip_enabled=True", "optimizer.qk_clip_threshold=30"}), 30);
  EXPECT_EQ(threshold({"optimizer.qk_clip_enabled=False", "optimizer.qk_clip_threshold=30"}), 0);
  options.sets = {"optimizer.qk_clip_enabled=True"};
  EXPECT_THAT(importRun(ESPALIER_SOURCE_DIR "/test/equivalence/olmo2.yaml", options).diagnostics.render(),
              HasSubstr("; leave optimizer.qk_clip_enabled out"));
}

// The importer checks this and reports the key. The op's verifier also checks it, but would report a location in the
// model file.
TEST(ModelFault, RotaryPositionsNeedPairs) {
  ImportOptions options;
  options.sets = {"model.model_config.hidden_size=4128"};
  std::string text = importRun(ESPALIER_SOURCE_DIR "/configs/llama2_7b.yaml", options).diagnostics.render();
  EXPECT_THAT(
      text,
      HasSubstr("--set: error: rotary positions turn pairs of a head's values, wanted an even head_dim, got 129"));
  options.sets = {"model.model_config.head_dim=127"};
  text = importRun(ESPALIER_SOURCE_DIR "/configs/qwen3_30b_a3b.yaml", options).diagnostics.render();
  EXPECT_THAT(text, HasSubstr("wanted an even head_dim, got 127"));
}

// A plan may have more chunks than layers if only the first and the last chunk have no layers; they hold the embedding
// and the head.
TEST(PlanFault, ChunksWithoutLayersOnlyAtTheEnds) {
  auto pinned = [](int chunks, const std::string &layers) {
    return tiny({"parallel.parallel_mode=2", "planner.pin={pp: 2, schedule: interleaved, virtual_stages: " +
                                                 std::to_string(chunks) + layers + "}"});
  };
  EXPECT_TRUE(pinned(3, "").ok());
  EXPECT_TRUE(pinned(3, ", stage_layers: [0, 1, 1, 1, 1, 0]").ok());
  EXPECT_THAT(pinned(4, "").diagnostics.render(),
              HasSubstr("2 stages with 4 chunks each need 6 layers, the model has 4"));
}

// A wrong cluster value gives one error, in a run file and in a cluster file.
TEST(ClusterFault, AWrongConstantIsOneError) {
  auto messages = [](const std::string &constant) {
    std::vector<std::string> messages;
    for (const Diagnostic &diagnostic : tiny({"cluster={base: cpu_local, " + constant + "}"}).diagnostics.sorted())
      messages.push_back(diagnostic.message);
    return messages;
  };
  EXPECT_THAT(messages("hosts: 0"), ElementsAre("hosts must be between 1 and 1000000, got 0"));
  EXPECT_THAT(messages("hosts: x"), ElementsAre("hosts must be between 1 and 1000000, got x"));
  EXPECT_THAT(messages("memory_bytes: much"),
              ElementsAre("memory_bytes must be a size such as 80GB, at most 1048576TB, got much"));
  EXPECT_THAT(messages("link: {latency: slow}"), ElementsAre("latency must be a positive number, got slow"));
  EXPECT_THAT(messages("name: [1]"), ElementsAre("cluster.name must be a string, got [1]"));
}

// A batch that exceeds all limits gives one error, at the key that states it.
TEST(PlanFault, AHugeBatchIsOneError) {
  auto messages = [](const std::string &batch) {
    std::vector<std::string> messages;
    ImportedRun run = tiny({"parallel.parallel_mode=2", "planner={global_batch: " + batch + "}"});
    for (const Diagnostic &diagnostic : run.diagnostics.sorted())
      messages.push_back(diagnostic.where.file + ": " + diagnostic.message);
    return messages;
  };
  const std::string tooMany = "--set: planner.global_batch must be at most 1000000000000, got ";
  EXPECT_THAT(messages("1e18"), ElementsAre(tooMany + "1e18"));
  EXPECT_THAT(messages("1000000000001"), ElementsAre(tooMany + "1000000000001"));
  EXPECT_THAT(messages("1000000000000"), ElementsAre("--set: the global batch is above 10000000 samples"));
}

// A misspelt key is not also reported as missing. A key that is missing is reported beside it.
TEST(ClusterFault, AMisspeltConstantIsOneError) {
  const std::string cluster =
      "cluster={hosts: 2, devices_per_host: 4, memory_bytes: 1GB, memory_bandwith: 1e9, "
      "peak_flops: {f23: 1e9}, matmul_efficiency: 0.5, link: {bandwidth: 1e9}, network: {zzz: 1}}";
  std::vector<std::string> errors;
  for (const Diagnostic &diagnostic : tiny({cluster}).diagnostics.sorted())
    errors.push_back(diagnostic.message);
  EXPECT_THAT(errors, testing::UnorderedElementsAre(
                          HasSubstr("unknown key 'memory_bandwith' in cluster, did you mean 'memory_bandwidth'?"),
                          HasSubstr("unknown key 'f23' in cluster.peak_flops"),
                          HasSubstr("unknown key 'zzz' in cluster.network"), HasSubstr("has no network.bandwidth")));
}

const std::string modelConfig = "model.model_config.";

INSTANTIATE_TEST_SUITE_P(
    Keys, RunFault,
    testing::Values(
        Fault{{"sed=1"}, "unknown key 'sed', did you mean 'seed'?"},
        Fault{{modelConfig + "hiden_size=64"},
              "unknown key 'hiden_size' in model.model_config, did you mean 'hidden_size'?"},
        Fault{{"hidden_size=8"}, "unknown key 'hidden_size', did you mean 'model.model_config.hidden_size'?"},
        Fault{{"max_device_memory=3GB"}, "unknown key 'max_device_memory', did you mean 'context.max_device_memory'?"},
        Fault{{"learning_rate=1"},
              "unknown key 'learning_rate', did you mean 'grouped_lr_schedule.default.learning_rate' or "
              "'lr_schedule.learning_rate' or 'optimizer.learning_rate'?"},
        Fault{{"parallel_config.recompute=True"},
              "unknown key 'recompute' in parallel_config, did you mean 'planner.pin.recompute' or "
              "'recompute_config.recompute'?"},
        Fault{{"context.max_device_memory=3"},
              "context.max_device_memory is 3 bytes, in which no plan has room; write 3GB"},
        Fault{{"parallel_config=3"}, "parallel_config must be a map, got 3"},
        Fault{{"callbacks=3"}, "callbacks must be a list of maps, got 3"},
        Fault{{"callbacks=[3]"}, "callbacks[0] must be a map, got 3"},
        Fault{{"use_parallel=2"}, "use_parallel must be True or False, got 2"},
        Fault{{"runner_config.batch_size=0"}, "runner_config.batch_size must be a whole number of at least 1, got 0"},
        Fault{{"seed=1e3"}, "seed must be a whole number of at least 0, got 1e3; write 1000"},
        Fault{{"seed=99999999999999999999"}, "seed must be at most 9223372036854775807, got 99999999999999999999\n"},
        Fault{{"seed=-1"}, "seed must be a whole number of at least 0, got -1"},
        Fault{{"lr_schedule.total_steps=1.5"}, "lr_schedule.total_steps must be a whole number, got 1.5"},
        Fault{{"optimizer.eps=tiny"}, "optimizer.eps must be a number, got tiny"},
        Fault{{"context.max_device_memory=much"},
              "context.max_device_memory must be a size such as 30GB, at most 1048576TB, got much"},
        Fault{{"run_mode=[1]"}, "run_mode must be a string, got [1]"},
        Fault{{"train_dataset.input_columns={a: 1}"}, "train_dataset.input_columns must be a list, got {a: 1}"},
        Fault{{"no-equals"}, "--set takes section.key=value, got 'no-equals'"},
        Fault{{"a..b=1"}, "--set takes section.key=value"},
        Fault{{"seed=[1"}, "the value of 'seed' is not valid YAML: [1"},
        Fault{{"seed.deep=1"}, "'seed.deep' needs a map at seed, which is 42"},
        Fault{{"cluster.link.latency=1"}, "'cluster.link.latency' needs a map at cluster, which is cpu_local"},
        Fault{{"train_dataset.data_loader.sizes=[1]", "train_dataset.data_loader.sizes.1=2"},
              "train_dataset.data_loader.sizes is a list of 1 items, numbered from 0: there is no "
              "'train_dataset.data_loader.sizes.1'"}));

INSTANTIATE_TEST_SUITE_P(
    Model, RunFault,
    testing::Values(
        Fault{{"model.arch=null", modelConfig + "type=null"},
              "model.arch.type is missing, it chooses the file of configs/models"},
        Fault{{"model.arch.type=GPT2LMHeadModle"}, "no model file has arch 'GPT2LMHeadModle', there are "},
        Fault{{"model.arch.type=GPT2LMHeadModle"}, "LlamaForCausalLM, "},
        Fault{{"model.arch.type=GPT2LMHeadModle"}, "did you mean 'GPT2LMHeadModel'?"},
        Fault{{modelConfig + "type=LlamaConfig"}, "model_config is a LlamaConfig, the model gpt2 requires GPT2Config"},
        Fault{{modelConfig + "matmul_format=fp8", modelConfig + "compute_dtype=bfloat16"},
              "no matmul_format 'fp8', there are fp8_hybrid, fp8_e4m3, fp4_e2m1"},
        Fault{{modelConfig + "matmul_format=fp8_e4m3", modelConfig + "compute_dtype=float32"},
              "matmul_format fp8_e4m3 replaces a 16-bit compute_dtype, which is float32; compute_dtype: float32 → "
              "bfloat16"},
        Fault{{modelConfig + "matmul_format=fp8_e4m3", modelConfig + "compute_dtype=bfloat16"},
              "the system espalier has no rate of fp8 products on cpu_local"},
        Fault{{modelConfig + "num_heads=3"}, "hidden_size (64) is not a multiple of num_heads (3)"},
        Fault{{modelConfig + "num_layers=0"}, "num_layers is 0, must be at least 1"},
        Fault{{modelConfig + "num_layers=1000000"},
              "count of 'block' is 1000000, must be a whole number between 0 and 100000"},
        Fault{{modelConfig + "hidden_size=4.5"}, "hidden_size must be a whole number, got 4.5"},
        Fault{{modelConfig + "vocab_size=1"}, "vocab_size is 1, must be at least 2"},
        Fault{{modelConfig + "seq_length=1"}, "seq_length is 1, must be at least 2"},
        Fault{{modelConfig + "hidden_size=99999999999999999999"}, "hidden_size is 1e+20, must be at most 1e+12"},
        Fault{{modelConfig + "hidden_size=9000000000000000"}, "hidden_size is 9e+15, must be at most 1e+12"},
        Fault{{modelConfig + "hidden_size=100000000000", modelConfig + "num_heads=4"},
              "parameters, at most 1e16 are supported"},
        Fault{{modelConfig + "hidden_dropout_rate=lots"}, "hidden_dropout_rate must be a number, got lots"},
        Fault{{modelConfig + "hidden_dropout_rate=1"}, "hidden_dropout_rate is 1, must be below 1"},
        Fault{{modelConfig + "hidden_act=gleu"}, "hidden_act has no choice 'gleu', there are"},
        Fault{{modelConfig + "compute_dtype=float8"},
              "compute_dtype has no choice 'float8', there are bfloat16, float16, float32"},
        Fault{{modelConfig + "compute_dtype=bf16"},
              "compute_dtype has no choice 'bf16', there are bfloat16, float16, float32, did you mean 'bfloat16'?"},
        Fault{{modelConfig + "max_position_embeddings=32"},
              "seq_length is 64, must be at most 32 (max_position_embeddings)"},
        Fault{{modelConfig + "embedding_size=32"},
              "'hidden_size' and 'embedding_size' mean the same, keep one of them"},
        Fault{{modelConfig + "post_layernorm_residual=yes"}, "post_layernorm_residual can only be false here"},
        Fault{{modelConfig + "post_layernorm_residual=3"}, "post_layernorm_residual must be true or false, got 3"},
        Fault{{"moe_config.expert_num=8"}, "the model gpt2 has no experts: expert_num → 1, or another model.arch.type"},
        Fault{{"train_dataset.data_loader.config.seq_length=128"},
              "data have 128 tokens per sample, the model has seq_length 64"},
        Fault{{"train_dataset.data_loader.config.data_path=[1, a, 2]"},
              "data_path: 3 entries, must be paths, or pairs of weight and path"},
        Fault{{"train_dataset.data_loader.config.data_path=[0, a, 2, b]"},
              "data_path: \"0\" is no weight, want a number above 0: weight path weight path, or paths alone"},
        Fault{{"train_dataset.data_loader.config.data_path=[a, b, 1, c]"}, "data_path: \"a\" is no weight"},
        Fault{{"train_dataset.data_loader.config.data_path=[1, '<Specify path>']"},
              "train_dataset.data_loader.config.data_path is a placeholder, <Specify path>; write yours in its place"},
        Fault{{"train_dataset.data_loader.dataset_dir=<path>"},
              "train_dataset.data_loader.dataset_dir is a placeholder, <path>"},
        Fault{{"load_checkpoint=<path>"}, "load_checkpoint is a placeholder, <path>"},
        Fault{{"train_dataset.data_loader.config.split='''99,1,0'''"},
              "split \"'99,1,0'\": not a number; want three weights such as 969,30,1"},
        Fault{{"train_dataset.data_loader.config.eod_mask_loss=true"},
              "eod_mask_loss needs the token that ends a document, eod"},
        Fault{{"train_dataset.data_loader.config.reset_attention_mask=true"},
              "reset_attention_mask needs the token that ends a document, eod"},
        Fault{{"train_dataset.eod_reset=true"}, "eod_reset needs the token that ends a document, eod"}));

INSTANTIATE_TEST_SUITE_P(
    Training, RunFault,
    testing::Values(
        Fault{{"run_mode=trian"},
              "no run_mode 'trian', there are train, finetune, eval, predict, export, did you mean "
              "'train'?"},
        Fault{{"context.mode=1"}, "mode 1 (op by op) is not built, everything is compiled: 1 → 0"},
        Fault{{"optimizer.type=Adafactor"}, "no optimizer 'Adafactor', there are AdamW"},
        Fault{{"optimizer.type=SGD", "optimizer.momentum=1"}, "optimizer.momentum is 1, must be in [0, 1)"},
        Fault{{"optimizer.type=SGD", "optimizer.nesterov=True"}, "nesterov needs optimizer.momentum above 0"},
        Fault{{"optimizer.type=Muon", "optimizer.scale_mode=spectrum"},
              "no scale_mode 'spectrum', there are spectral, shape_scaling, unit_rms_norm"},
        Fault{{"optimizer.qk_clip_threshold=0"},
              "optimizer.qk_clip_threshold is 0, must be above 0 and at most 1e30; leave it out to train without "
              "QK-clip"},
        Fault{{"optimizer.qk_clip_threshold=-5"}, "optimizer.qk_clip_threshold is -5, must be above 0"},
        Fault{{"optimizer.qk_clip_threshold=100", "optimizer.qk_clip_alpha=1.5"},
              "optimizer.qk_clip_alpha is 1.5, must be 0 to 1"},
        Fault{{"optimizer.qk_clip_alpha=-0.1"}, "optimizer.qk_clip_alpha is -0.1, must be 0 to 1"},
        Fault{{"optimizer.betas=[0.9]"}, "optimizer.betas must be two numbers such as [0.9, 0.95]"},
        Fault{{"optimizer.beta2=1"}, "optimizer.beta2 is 1, must be in [0, 1)"},
        Fault{{"optimizer.betas=[1.5, 0.9]"}, "optimizer.beta1 is 1.5, must be in [0, 1)"},
        Fault{{"optimizer.weight_decay=-1"}, "optimizer.weight_decay is -1, must be at least 0"},
        Fault{{"lr_schedule.warmup_steps=50", "lr_schedule.total_steps=40"},
              "warmup_steps is 50, must be at most the total_steps 40"},
        Fault{{"optimizer.eps=0"}, "optimizer.eps is 0, must be above 0"},
        Fault{{"optimizer.master_weights=True"}, "parameters are float32 already, master_weights is for 16-bit ones"},
        Fault{{"runner_wrapper.max_grad_norm=0"}, "runner_wrapper.max_grad_norm is 0, must be above 0"},
        Fault{{"lr_schedule.type=cosin"}, "no learning-rate schedule 'cosin', there are"},
        Fault{{"lr_schedule.lr_end=1"}, "lr_end (1) must be at most learning_rate (0.001)"},
        Fault{{"lr_schedule.learning_rate=0", "lr_schedule.type=constant"}, "learning_rate is 0, must be above 0"},
        Fault{{"lr_schedule.warmup_ratio=2"}, "warmup_ratio is 2, must be in [0, 1]"},
        Fault{{"lr_schedule.warmup_epochs=2"}, "give warmup_steps or warmup_ratio"},
        Fault{{"lr_schedule.total_steps=0"}, "total_steps is 0, must be -1 or at least 1"},
        Fault{{"lr_schedule.type=wsd"}, "wsd needs lr_schedule.decay_steps"},
        Fault{{"runner_wrapper.scale_sense={type: Magic}"},
              "no loss scale 'Magic', there are DynamicLossScaleUpdateCell"},
        Fault{{"runner_wrapper.scale_sense=0"}, "loss scale is 0, must be above 0"},
        Fault{{"runner_wrapper.scale_sense={scale_factor: 1}", modelConfig + "compute_dtype=float16"},
              "scale_factor is 1, must be above 1"}));

INSTANTIATE_TEST_SUITE_P(
    Plan, RunFault,
    testing::Values(
        Fault{{"parallel.parallel_mode=3"},
              "parallel_mode 3 means code that is split by hand, there is none here: 3 → 1 or 2"},
        Fault{{"parallel.parallel_mode=fast"},
              "no parallel_mode 'fast', there are 0 (data parallel), 1 (as given) and 2 (planner)"},
        Fault{{"parallel_config.data_parallel=4"},
              "dp 4 · tp 2 · pp 2 · cp 1 needs 16 devices, cluster cpu_local has 8; data_parallel: "
              "4 → 2"},
        Fault{{"parallel_config.model_parallel=3"}, "heads 4 is not a multiple of tp 3; model_parallel: 3 → 2 or 4"},
        Fault{{"parallel_config.model_parallel=3"},
              "needs 12 devices, cluster cpu_local has 8; choose a cluster of that size"},
        Fault{{"parallel_config.pipeline_stage=8"},
              "8 pipeline stages need as many layers, the model has 4; pipeline_stage: 8 → 4"},
        Fault{{"parallel_config.micro_batch_num=1"},
              "1 micro-batches cannot fill 2 pipeline stages; micro_batch_num: 1 → 2"},
        Fault{{"parallel_config.expert_parallel=2"},
              "expert parallelism needs experts, the model is dense; expert_parallel: 2 → 1"},
        Fault{{"parallel.parallel_mode=2", "planner.pin.expert_tensor_parallel=False"},
              "expert_tensor_parallel splits experts, but the model has none; expert_tensor_parallel: False → "
              "True"},
        Fault{{"parallel.parallel_mode=2", "planner.pin={sequence_parallel: True, tp: 1}"},
              "sequence parallelism splits over tensor ranks, tp is 1; sequence_parallel: True → False, or tp above 1"},
        Fault{{"parallel_config.use_seq_parallel=True", modelConfig + "seq_length=63"},
              "seq 63 is not a multiple of tp 2, over which sequence parallelism splits it"},
        Fault{{"parallel_config.context_parallel=3"}, "seq 64 is not a multiple of cp 3; context_parallel: 3 → 2 or 4"},
        Fault{{"parallel_config.context_parallel=3", "planner.pin.zigzag=True"},
              "seq 64 is not a multiple of 2 · cp 3; context_parallel: 3 → 2 or 4"},
        Fault{{"parallel_config.context_parallel=2", "parallel_config.use_seq_parallel=True",
               modelConfig + "seq_length=62"},
              "seq 62 is not a multiple of cp 2 · tp 2, over which sequence parallelism splits it"},
        Fault{{"planner.pin.stage_layers=[1, 2]"}, "stages have 3 layers together, the model has 4"},
        Fault{{"planner.pin.stage_layers=[1, 2, 1]"}, "3 stages have layers, the pipeline has 2"},
        Fault{{"planner.pin.stage_layers=[4, 0]"}, "every stage needs a layer, got [4, 0]"},
        Fault{{"planner.pin.stage_layers=[0, 1, 3]", "planner.pin.virtual_stages=2"},
              "3 chunks have layers, the pipeline has 4"},
        Fault{{"planner.pin.stage_layers=[1, 2, 1]", "planner.pin.schedule=zero_bubble_v"},
              "3 chunks have layers, the pipeline has 4"},
        Fault{{"planner.pin.stage_layers=[-1, 2, 2, 1]", "planner.pin.virtual_stages=2"},
              "every chunk needs 0 layers or more, got [-1, 2, 2, 1]"},
        Fault{{"planner.pin.stage_layers=[a]"}, "planner.pin.stage_layers must be a list of whole numbers, got a"},
        Fault{{modelConfig + "offset=[1]"}, "offset has 1 entries, pipeline_stage is 2"},
        Fault{{modelConfig + "offset=1"}, "offset must be 0 or a list with one entry per stage, got 1"},
        Fault{{"recompute_config.recompute=[1]"}, "recompute has 1 entries, pipeline_stage is 2"},
        Fault{{"recompute_config.recompute=some"},
              "recompute must be True, False or a list of layers per stage, got some"},
        Fault{{"recompute_config.recompute=[[1, 1], [x, 1]]"},
              "recompute must be True, False or a list of layers per stage, got [[1, 1], [x, 1]]"},
        Fault{{"recompute_config.recompute=[[1, 1], 1]"},
              "recompute must be True, False or a list of layers per stage, got [[1, 1], 1]"},
        Fault{{"recompute_config.recompute=[[1, 1, 1]]"}, "recompute has a list of 3 entries, pipeline_stage is 2"},
        Fault{{modelConfig + "offset=[[1, -1], [0, 0]]"}, "offset has 2 lists, pp_interleave_num is 1"},
        Fault{{modelConfig + "offset={a: 1}"}, "offset must be 0 or a list with one entry per stage, got {a: 1}"},
        Fault{{modelConfig + "offset=[9, -9]"}, "offset must be a list of whole numbers, at most the 4 layers, got 9"},
        Fault{{"recompute_config.select_recompute=[1, 2, 3]"}, "select_recompute has 3 entries, pipeline_stage is 2"},
        Fault{{"recompute_config.select_recompute={norm: [1, -1]}"},
              "select_recompute must be True, False or a list of layers per stage, got [1, -1]"},
        Fault{{"recompute_config.select_recompute={norm: [1, 1], mul: [[1, 1], [1, 1]]}"},
              "select_recompute counts layers of stages for one pattern and of chunks for another"},
        Fault{{"recompute_config.recompute=[[1, 1], [1, 1]]"},
              "2 lists of layers for 1 chunk of a stage; say one list for all of a stage, or one for each of its "
              "chunks"},
        Fault{{"planner.pin.recompute=all"}, "no choice 'all', there are none, selective, full"},
        Fault{{"planner.pin.schedule=1f2b"},
              "no choice '1f2b', there are 1f1b, gpipe, interleaved, zero_bubble_h1, "
              "zero_bubble_v, v_half, v_min, did you mean '1f1b'?"},
        Fault{{"planner.pin.zero=7"}, "there are ZeRO stages 0 to 3, got 7"},
        Fault{{"planner.pin.dp=2", "planner.pin.zero_group=3"},
              "ZeRO groups of 3 ranks do not divide dp 2; zero_group: 3 → 2"},
        Fault{{"swap_config.swap=True"},
              "nothing can be offloaded, cluster cpu_local has no link to host memory (host.bandwidth); swap: True → "
              "False"},
        Fault{{"planner.pin.offload_optimizer=True", "planner.pin.offload_activations=True"},
              "(host.bandwidth); offload_optimizer: True → False"},
        Fault{{"planner.pin.offload_parameters=True"},
              "parameters are offloaded under ZeRO 3 only, the ZeRO stage is 1; planner.pin.zero: 3"},
        Fault{{"planner.pin.offload_parameters=True"},
              "parameters are offloaded with the optimizer only; planner.pin.offload_optimizer: True"},
        Fault{{"planner.global_batch=48"},
              "global_batch is 48, the pinned plan has 32 = micro-batch size 4 · micro-batches 4 · "
              "dp 2"},
        Fault{{"parallel.parallel_mode=2", "planner={global_batch: 9, pin: {dp: 2}}"},
              "global batch 9 is not a multiple of dp 2 · micro-batch size 1 · micro-batches 1; planner.global_batch: "
              "9 → 8 or 10"},
        Fault{{"parallel.parallel_mode=2",
               "planner={global_batch: 9, pin: {dp: 2, micro_batch_size: 2, micro_batches: 2}}"},
              "global batch 9 is not dp 2 · micro-batch size 2 · micro-batches 2; planner.global_batch: 9 → 8"},
        Fault{{"parallel.parallel_mode=2", "planner.pin.tp=3"},
              "needs a multiple of 3 devices, cluster cpu_local has 8"},
        Fault{{"runner_config.batch_size=1000000000000"}, "the global batch is above 10000000 samples"},
        Fault{{"parallel_config.micro_batch_num=65537"},
              "65537 micro-batches, a step has at most 65536 on each replica"}));

INSTANTIATE_TEST_SUITE_P(
    Clusters, RunFault,
    testing::Values(
        Fault{{"cluster=cpu_locl"}, "no cluster 'cpu_locl', there are"},
        Fault{{"cluster=h100"}, "did you mean 'h100_96g'?"},
        Fault{{"cluster=cpu_local:8"},
              "'cpu_local:8' is neither NAME nor NAME:HOSTSxDEVICES, did you mean 'cpu_local:1x8'?"},
        Fault{{"cluster=cpu_local:0x8"}, "a cluster needs at least one host and one device per host"},
        Fault{{"cluster={base: cpu_local, hosts: 999999, devices_per_host: 999999}"},
              "a cluster has at most 1000000 devices"},
        Fault{{"cluster={base: cpu_local, hosts: 9999999}"}, "hosts must be between 1 and 1000000, got 9999999"},
        Fault{{"cluster={base: cpu_local, host: {memory_bytes: 8GB}}"}, "cluster 'cpu_local' has no host.bandwidth"},
        Fault{{"cluster={base: cpu_local, host: {bandwidth: 1e9}}"}, "cluster 'cpu_local' has no host.memory_bytes"},
        Fault{{"cluster={base: rtx4090_x4, host: {devices_per_link: 0}}"},
              "devices_per_link must be between 1 and 1000000, got 0"},
        Fault{{"cluster={base: cpu_local, memory_bandwidth: -1}"},
              "memory_bandwidth must be a positive number, got -1"},
        Fault{{"cluster={base: cpu_local, matmul_efficiency: 6}"},
              "matmul_efficiency is a share of the peak, at most 1, got 6"},
        Fault{{"cluster={base: cpu_local, memory_margin: 4}"},
              "memory_margin is a share of a device's memory, at most 1, got 4"},
        Fault{{"cluster={base: cpu_local, memory_margin: 1}"},
              "cluster 'cpu_local' has no memory_bytes beyond the reserved ones and the margin"},
        Fault{{"cluster={base: cpu_local, memory_bytes: 9999999999GB}"},
              "memory_bytes must be a size such as 80GB, at most 1048576TB, got 9999999999GB"},
        Fault{{"cluster={base: cpu_local, matmul_algorithms: {library: cuBLASLt}}"},
              "matmul_algorithms needs a library and a list of products, as `espalier calibrate --target cuda --plan` "
              "writes them"},
        Fault{{"cluster={base: cpu_local, matmul_algorithms: {library: cuBLASLt, products: [{product: a, algorithm: "
               "0g}]}}"},
              "a product needs `product` and `algorithm`, bytes in pairs of the digits 0 to f, got {product: a, "
              "algorithm: 0g}"},
        Fault{
            {"cluster={base: cpu_local, matmul_algorithms: {library: cuBLASLt, products: [{product: a, algorithm: 0f}, "
             "{product: a, algorithm: 0e}]}}"},
            "the product 'a' has an algorithm already"},
        Fault{{"context.unfused_epilogues=[bias, bias_gradients]"},
              "no epilogue 'bias_gradients', there are bias, gelu_gradient, bias_gelu, bias_gradient, add, bias_add, "
              "did you "
              "mean 'bias_gradient'?"},
        Fault{{"cluster={name: mine, devices_per_host: 8}"}, "cluster 'mine' has no memory_bytes"},
        Fault{{"cluster={base: cpu_local, link: {bandwith: 1}}"},
              "unknown key 'bandwith' in cluster.link, did you mean 'bandwidth'?"}));

// A wrong value gives one error, without errors that follow from it.
// Names of transformers, torch and Megatron, under every model file.
TEST(RunErrors, NamesOfOthersAreUnderstood) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"tensor_parallel", "parallel_config.model_parallel"},
      {"parallel_config.tensor_model_parallel_size", "parallel_config.model_parallel"},
      {"global_batch_size", "planner.global_batch"},
      {"runner_config.per_device_train_batch_size", "runner_config.batch_size"},
      {"lr", "lr_schedule.learning_rate"},
      {"optimizer.lr", "lr_schedule.learning_rate"},
      {"max_steps", "lr_schedule.total_steps"},
      {"n_layer", "model.model_config.num_layers"},
      {modelConfig + "n_layers", "model.model_config.num_layers"},
      {modelConfig + "n_embd", "model.model_config.hidden_size"}};
  for (const char *config : {"tiny_gpt", "llama2_7b", "mixtral_8x7b", "qwen3_30b_a3b"})
    for (const auto &[name, own] : names) {
      ImportOptions options;
      options.sets = {name + "=3"};
      ImportedRun run = importRun(std::string(ESPALIER_SOURCE_DIR "/configs/") + config + ".yaml", options);
      EXPECT_THAT(run.diagnostics.render(), HasSubstr(", did you mean '" + own + "'?")) << config << " " << name;
    }
  EXPECT_THAT(tiny({modelConfig + "num_hidden_layers=3"}).diagnostics.render(), HasSubstr("model_config.num_layers'?"));
  EXPECT_THAT(tiny({modelConfig + "ffn_hidden_size=3"}).diagnostics.render(), HasSubstr("model_config.expand_ratio'?"));
}

TEST(RunErrors, AFaultIsReportedOnce) {
  for (const char *set :
       {"model.model_config.hidden_size=many", "model.model_config.hidden_size=-64",
        "model.model_config.num_layers=4.5", "model.model_config.num_layers=1000000",
        "model.model_config.hidden_act=gleu", "model.arch.type=Bert", "cluster={base: cpu_locl, name: mine, hosts: 4}",
        "planner.pin.micro_batches=0", "planner.pin.micro_batch_size=-3"}) {
    ImportedRun run = tiny({set});
    EXPECT_EQ(run.diagnostics.sorted().size(), 1) << set << "\n" << run.diagnostics.render();
  }
  EXPECT_EQ(tiny({"parallel_config.pipeline_stage=4"}).diagnostics.sorted().size(), 1); // the number of devices is
                                                                                        // wrong
}

TEST(RunErrors, AllFaultsOfAFileAreReportedTogether) {
  ImportedRun run = tiny({"sed=1", "parallel_config.model_parallel=3", "lr_schedule.lr_end=1"});
  EXPECT_THAT(run.diagnostics.render(), AllOf(HasSubstr("'sed'"), HasSubstr("heads 4"), HasSubstr("hidden 64"),
                                              HasSubstr("ffn 256"), HasSubstr("lr_end"), HasSubstr("12 devices")));
}

TEST(RunErrors, WrongClusterOptionIsNamed) {
  EXPECT_THAT(tiny({}, "nowhere").diagnostics.render(), HasSubstr("--cluster: error: no cluster 'nowhere', there are"));
  // There is no error for missing constants of the cluster in the file.
  ImportOptions options;
  options.cluster = "nowhere";
  ImportedRun run = importRun(ESPALIER_SOURCE_DIR "/configs/gpt2_13b_4x8.yaml", options);
  EXPECT_EQ(run.diagnostics.sorted().size(), 1) << run.diagnostics.render();
}

TEST(RunErrors, OnlyUsedHostsCanBeLost) {
  const std::string file = ESPALIER_SOURCE_DIR "/configs/gpt2_13b_4x8.yaml"; // four hosts with eight devices each
  ImportOptions options;
  options.freeAtBatch = 192;
  options.devices = 48;
  options.loseNodes = 5;
  EXPECT_EQ(importRun(file, options).config.cluster.hosts, 1);
  options.devices = 16;
  options.loseNodes = 2;
  EXPECT_THAT(importRun(file, options).diagnostics.render(),
              HasSubstr("--lose-node: error: --devices 16 fills 2 hosts, at most 1 can be lost, got 2"));
}

} // namespace
} // namespace espalier
