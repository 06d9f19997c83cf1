// Imports a Megatron command line as a run file. Each flag of the launch is mapped.
#include "compiler/import/megatron/import_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace espalier;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

ImportedArgs importText(const std::string &text, const std::string &cluster = "a100_80g_selene:1x4") {
  ArgsOptions options;
  options.cluster = cluster;
  return importArgs("x.sh", text, options);
}

std::string errorsOf(const std::string &text, const std::string &cluster = "a100_80g_selene:1x4") {
  ImportedArgs args = importText(text, cluster);
  EXPECT_TRUE(args.diagnostics.hasErrors()) << args.yaml;
  return args.diagnostics.render();
}

/// 24 layers on 4 devices; the size of the run file gpt3_857m.
const std::string small = "pretrain.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
                          "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 16 ";

} // namespace

TEST(ImportArgs, LaunchersStateTheDevices) {
  auto clusterOf = [](const std::string &launcher) {
    std::string yaml = importText(launcher + " " + small + "--micro-batch-size 1 --lr 1e-4", "h100_dgx").yaml;
    size_t begin = yaml.find("h100_dgx:");
    return begin == std::string::npos ? "none" : yaml.substr(begin, yaml.find('\'', begin) - begin);
  };
  EXPECT_EQ(clusterOf("torchrun --nproc_per_node 8 --nnodes 2"), "h100_dgx:2x8");
  EXPECT_EQ(clusterOf("python -m torch.distributed.launch --nproc_per_node=4"), "h100_dgx:1x4"); // default: one host
  EXPECT_EQ(clusterOf("deepspeed --num_gpus 8 --num_nodes 2"), "h100_dgx:2x8");
  EXPECT_EQ(clusterOf("srun -N 2 --ntasks-per-node=8 python"), "h100_dgx:2x8");
  EXPECT_EQ(clusterOf("srun --nodes=2 --ntasks-per-node=1 torchrun --nproc-per-node 8 --nnodes 2"), "h100_dgx:2x8");
  EXPECT_EQ(clusterOf("torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES"), "none");
  EXPECT_EQ(clusterOf("torchrun --nproc_per_node $GPUS"), "none");
  EXPECT_EQ(clusterOf("srun python"), "none");
  EXPECT_EQ(clusterOf("bash $LAUNCHER"), "none");
}

TEST(ImportArgs, SizesSplitAndBatch) {
  ImportedArgs args = importText(small + "--micro-batch-size 4 --bf16 --swiglu-not-here");
  EXPECT_THAT(args.diagnostics.render(), HasSubstr("unknown flag --swiglu-not-here"));
  args = importText(small + "--micro-batch-size 4 --bf16");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  for (const char *line : {"  batch_size: 4", "  data_parallel: 1", "  model_parallel: 2", "  micro_batch_num: 4",
                           "    compute_dtype: bfloat16", "    vocab_size: 50257", "    type: GPT2LMHeadModel"})
    EXPECT_THAT(args.yaml, HasSubstr(line));
}

TEST(ImportArgs, RecomputeStagesAndSharding) {
  ImportedArgs args =
      importText(small + "--recompute-granularity full --recompute-method block --recompute-num-layers 3 "
                         "--decoder-first-pipeline-num-layers 10 --use-distributed-optimizer");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  EXPECT_THAT(args.yaml, HasSubstr("  recompute: [3, 3]"));
  EXPECT_THAT(args.yaml, HasSubstr("offset: [-2, 2]"));
  EXPECT_THAT(args.yaml, HasSubstr("enable_parallel_optimizer: True"));
  args = importText(small +
                    "--num-layers-per-virtual-pipeline-stage 4 --data-parallel-sharding-strategy optim_grads_params");
  EXPECT_THAT(args.yaml, HasSubstr("virtual_stages: 3"));
  EXPECT_THAT(args.yaml, HasSubstr("pipeline_interleave: True"));
  EXPECT_THAT(args.yaml, HasSubstr("parallel_optimizer_comm_recompute: True"));
}

TEST(ImportArgs, ContextRanksAreInZigzagOrder) {
  ImportedArgs args = importText(small + "--micro-batch-size 1 --context-parallel-size 2", "h100_dgx:2x8");
  EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  EXPECT_THAT(args.yaml, HasSubstr("    zigzag: True"));
}

// 16 devices with tp 2 and pp 2 have dp 4.
TEST(ImportArgs, InstancesOfTheDistributedOptimizer) {
  auto importWith = [](const std::string &flags) {
    return importText(small + "--micro-batch-size 1 " + flags, "h100_dgx:2x8");
  };
  const std::string instances = "--use-distributed-optimizer --num-distributed-optimizer-instances ";
  ImportedArgs args = importWith(instances + "2 --outer-dp-sharding-strategy no_shard");
  EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  EXPECT_THAT(args.yaml, HasSubstr("    zero_group: 2"));
  EXPECT_THAT(importWith(instances + "2 --outer-dp-sharding-strategy optim").diagnostics.render(),
              HasSubstr("replicas of shards are not sharded again"));
  EXPECT_THAT(importWith(instances + "3").diagnostics.render(), HasSubstr("3 instances do not divide dp 4"));
  EXPECT_THAT(importWith("--num-distributed-optimizer-instances 2").diagnostics.render(),
              HasSubstr("add --use-distributed-optimizer"));
}

// Megatron counts recomputed layers per chunk, and spreads the layers of a stage evenly over its chunks.
TEST(ImportArgs, LayersAreSpreadOverChunks) {
  const std::string chunks = small + "--num-virtual-stages-per-pipeline-rank 2 ";
  std::string yaml = importText(chunks + "--recompute-granularity full --recompute-method block "
                                         "--recompute-num-layers 3 --decoder-first-pipeline-num-layers 10")
                         .yaml;
  EXPECT_THAT(yaml, HasSubstr("  recompute: [[3, 3], [3, 3]]"));
  EXPECT_THAT(yaml, HasSubstr("offset: [-1, 1]"));
  EXPECT_THAT(errorsOf(chunks + "--decoder-first-pipeline-num-layers 11"),
              HasSubstr("11 layers of a stage are not a multiple of its 2 chunks"));
  yaml = importText(small + "--pipeline-model-parallel-layout \"Et*6|t*6|t*6|t*6L\" --recompute-granularity full "
                            "--recompute-method block")
             .yaml;
  EXPECT_THAT(yaml, HasSubstr("  recompute: [[1, 1], [1, 1]]"));
}

// Older scripts usually put options in a string that begins with a blank or a line continuation.
TEST(ImportArgs, StringsOfOptionsMayBeginWithBlanks) {
  for (const char *options :
       {"OPTIONS=\" --seed 7\"", "OPTIONS=\"\\\n --seed 7 \\\n\"", "OPTIONS=\"\"; OPTIONS=\" --seed 7 $OPTIONS\""}) {
    ImportedArgs args = importText(std::string(options) + "\n" + small + "--log-interval 10 $OPTIONS");
    EXPECT_FALSE(args.diagnostics.hasErrors()) << options << "\n" << args.diagnostics.render();
    EXPECT_THAT(args.yaml, HasSubstr("seed: 7")) << options;
  }
}

TEST(ImportArgs, MegatronDeepSpeed) {
  const std::string llama = small + "--swiglu --normalization rmsnorm --use-rotary-position-embeddings "
                                    "--no-position-embedding --disable-bias-linear --hidden-dropout 0 "
                                    "--untie-embeddings-and-output-weights --attention-dropout 0 --vocab-size 32000 "
                                    "--num-key-value-heads 4 --deepspeed --deepspeed_config=ds.json --zero-stage=";
  ImportedArgs args = importText(llama + "2");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  for (const char *line : {"type: LlamaForCausalLM", "n_kv_heads: 4", "enable_parallel_optimizer: True",
                           "gradient_accumulation_shard: True"})
    EXPECT_THAT(args.yaml, HasSubstr(line));
  EXPECT_THAT(errorsOf(llama + "4"), HasSubstr("there are ZeRO stages 0 to 3, got 4"));
  EXPECT_THAT(errorsOf(small + "--no-position-embedding"), HasSubstr("gpt2 has learned positions"));
}

TEST(ImportArgs, FewerMicroBatchesThanStages) {
  std::string text = small;
  text.replace(text.find("--global-batch-size 16"), 22, "--global-batch-size 1 --micro-batch-size 1 --lr 1e-4");
  ImportedArgs args = importText(text);
  EXPECT_THAT(args.diagnostics.render(), Not(HasSubstr("cannot fill")));
  EXPECT_THAT(args.yaml, HasSubstr("micro_batches: 1"));
}

TEST(ImportArgs, LayoutOfStages) {
  const std::string flag = "--pipeline-model-parallel-layout ";
  EXPECT_THAT(importText(small + flag + "'Et*10|t*14L'").yaml, HasSubstr("stage_layers: [10, 14]"));
  ImportedArgs chunks = importText(small + flag + "'E|(t*6,|)*2(tt)*6L'");
  EXPECT_FALSE(chunks.diagnostics.hasErrors()) << chunks.diagnostics.render();
  EXPECT_THAT(chunks.yaml, HasSubstr("stage_layers: [0, 6, 6, 12]"));
  EXPECT_THAT(chunks.yaml, HasSubstr("virtual_stages: 2"));
  for (auto [text, fault] : {std::pair("Et*24L", "the layout has 1 stages, not a multiple of pp 2"),
                             {"Et*24|tL", "the layout has 25 layers, the model has 24"},
                             {"Et*24|mL", "prediction of several tokens (m) is not built"},
                             {"t*24|L", "the embedding (E) has to come first and the head (L) last"},
                             {"Et*24|x", "'x' is no part of a layout, wanted E, t, L, |"},
                             {"E(t*24|L", "a group is not closed"},
                             {"Et*0|L", "a repeat must be between 1 and"},
                             {"E(t*99999)*99999|L", "a repeat must be between 1 and"}})
    EXPECT_THAT(errorsOf(small + flag + "'" + text + "'"), HasSubstr(fault));
}

TEST(ImportArgs, OffloadsStateAndWholeLayers) {
  std::string yaml = importText(small + "--offload-optimizer-states --cpu-offloading-num-layers 23").yaml;
  EXPECT_THAT(yaml, HasSubstr("offload_optimizer: True"));
  EXPECT_THAT(yaml, HasSubstr("offload_activations: True"));
  EXPECT_THAT(errorsOf(small + "--cpu-offloading-num-layers 12"),
              HasSubstr("all 24 layers are offloaded or none, got 12; --cpu-offloading-num-layers: 12 → 23"));
}

TEST(ImportArgs, LlamaNeedsAllOfItsFlags) {
  const std::string marks = "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
                            "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0.0 "
                            "--num-query-groups 4 --ffn-hidden-size 2816 --tokenizer-type Llama2Tokenizer ";
  ImportedArgs args = importText(small + marks + "--swiglu");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  for (const char *line : {"type: LlamaForCausalLM", "n_kv_heads: 4", "intermediate_size: 2816", "vocab_size: 32000"})
    EXPECT_THAT(args.yaml, HasSubstr(line));
  EXPECT_THAT(errorsOf(small + marks), HasSubstr("no architecture of configs/models has this mix"));
}

/// A script for one GPU: without flags, the launcher starts one process.
TEST(ImportArgs, OneDeviceIsTorchsDefault) {
  const std::string one = "x.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --lr 1e-4";
  for (const char *launcher :
       {"torchrun ", "torchrun --standalone ", "python -u ", "python3 -m torch.distributed.run ", ""})
    EXPECT_THAT(importText(launcher + one, "h100_dgx").yaml, HasSubstr("h100_dgx:1x1")) << launcher;
  EXPECT_THAT(importText("torchrun --nnodes 2 " + one, "h100_dgx").yaml, HasSubstr("h100_dgx:2x1"));
}

// Without --use-flash-attn, the implementation in PyTorch stores its scores. Transformer Engine, the default, does not.
TEST(ImportArgs, TheAttentionBackendSaysWhetherScoresAreStored) {
  auto stores = [](const std::string &flags) {
    return importText(small + flags).yaml.find("use_flash_attention: False") != std::string::npos;
  };
  for (const char *flags : {"--attention-backend unfused", "--attention-backend local", "--transformer-impl local",
                            "--use-legacy-models", "--transformer-impl local --attention-backend unfused"})
    EXPECT_TRUE(stores(flags)) << flags;
  for (const char *flags : {"", "--attention-backend flash", "--attention-backend auto", "--use-flash-attn",
                            "--transformer-impl transformer_engine", "--transformer-impl local --use-flash-attn"})
    EXPECT_FALSE(stores(flags)) << flags;
}

// Each flag changes what is trained, so it is mapped or refused, and never ignored.
TEST(ImportArgs, FlagsThatChangeTheTraining) {
  for (auto [flags, reason] :
       {std::pair("--use-rope-scaling", "gpt2 has learned positions"),
        {"--fp8-format hybird", "no format 'hybird', there are e4m3, hybrid"},
        {"--fp8-format e4m3 --fp4-format e2m1", "--fp8-format and --fp4-format contradict each other"},
        {"--fp8-format hybrid --no-fp8-wgrad", "all products of a layer have one format"},
        {"--lr-decay-style WSD --lr 1e-4", "WSD needs --lr-wsd-decay-iters"},
        {"--lr-decay-style WSD --lr 1e-4 --lr-wsd-decay-iters 9 --lr-wsd-decay-style linear",
         "falls exponentially here"},
        {"--activations-checkpoint-method odd", "no method 'odd', there are uniform, block"}})
    EXPECT_THAT(errorsOf(small + flags), HasSubstr(reason)) << flags;
  ImportedArgs args =
      importText(small + "--lr-decay-style WSD --lr 1e-4 --lr-wsd-decay-samples 160 --lr-decay-iters 100 "
                         "--activations-checkpoint-method block --activations-checkpoint-num-layers 3");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  EXPECT_THAT(args.yaml, AllOf(HasSubstr("type: wsd"), HasSubstr("decay_steps: 10  # --lr-wsd-decay-samples\n"),
                               HasSubstr("recompute: [3, 3]")));
  args = importText(small + "--bf16 --grad-reduce-in-bf16 --calculate-per-token-loss");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  EXPECT_EQ(args.diagnostics.render(), "");
  EXPECT_THAT(args.yaml, HasSubstr("  gradient_fp32_sync: False"));
  for (const char *type : {"--bf16 --accumulate-allreduce-grads-in-fp32", "--bf16"})
    EXPECT_THAT(importText(small + type).yaml, Not(HasSubstr("gradient_fp32_sync"))) << type;
  // Upstream, gradients of --fp16 are in float16 unless a flag raises them. The flag for bfloat16 has no effect.
  for (const char *more : {"", " --grad-reduce-in-bf16"})
    EXPECT_THAT(importText(small + "--fp16" + more).yaml, HasSubstr("  gradient_fp32_sync: False  # --fp16\n"));
  EXPECT_THAT(importText(small + "--fp16 --accumulate-allreduce-grads-in-fp32").yaml,
              HasSubstr("  gradient_fp32_sync: True"));
  EXPECT_THAT(importText(small + "--bf16 --accumulate-allreduce-grads-in-fp32 --grad-reduce-in-bf16").yaml,
              HasSubstr("  gradient_fp32_sync: False")); // as upstream
  // An export has no type: its flags are imported over a run file.
  for (auto [flags, line] : {std::pair("--accumulate-allreduce-grads-in-fp32",
                                       "  gradient_fp32_sync: True  # --accumulate-allreduce-grads-in-fp32\n"),
                             {"--accumulate-allreduce-grads-in-fp32 --grad-reduce-in-bf16",
                              "  gradient_fp32_sync: False  # --grad-reduce-in-bf16\n"}}) {
    ArgsOptions options;
    options.base = "base.yaml";
    options.baseDevices = 4, options.baseLayers = 24;
    EXPECT_THAT(importArgs("x.sh", small + flags, options).yaml, HasSubstr(line));
  }
}

TEST(ImportArgs, FlagsWithoutEffectHaveTheirReason) {
  ImportedArgs args = importText(
      small + "--no-mmap-bin-files --logging-level 20 --dist-ckpt-strictness log_all --deterministic-mode "
              "--use-persistent-ckpt-worker --ckpt-fully-parallel-save --ckpt-fully-parallel-load --wandb-entity a "
              "--save-retain-interval 10 --init-model-with-meta-device --use-nccl-ub --fsdp-double-buffer --use-mc2 "
              "--use-fused-rmsnorm --use-fused-swiglu --use-fused-rotary-pos-emb --reuse-fp32-param --use-custom-fsdp");
  EXPECT_EQ(args.diagnostics.render(), "");
  size_t ignored = 0;
  for (const ImportedKey &flag : args.flags)
    ignored += !flag.isUsed && !flag.effect.empty();
  EXPECT_EQ(ignored, 18U);
}

TEST(ImportArgs, FlagsOfTheUsersChoiceAreIgnored) {
  ArgsOptions options;
  options.cluster = "a100_80g_selene:1x4";
  options.ignoredFlags = {"--min-loss-scale", "--own-flag"};
  ImportedArgs args = importArgs("x.sh", small + "--min-loss-scale 2 --own-flag 7", options);
  EXPECT_EQ(args.diagnostics.render(), "");
  EXPECT_TRUE(std::ranges::any_of(args.flags, [](const ImportedKey &flag) {
    return flag.key == "--own-flag" && flag.effect == "--ignore-flags" && !flag.isUsed;
  }));
  EXPECT_THAT(importArgs("x.sh", small, options).diagnostics.render(),
              HasSubstr("--ignore-flags names --own-flag, which the script does not have"));
}

// One error lists all flags whose values only the shell knows.
TEST(ImportArgs, UnknownValuesAreReportedOnce) {
  std::string text =
      errorsOf("N=$(nproc)\nx.py --num-layers $N --hidden-size $N --num-attention-heads $N --seq-length $N "
               "--lr $N --min-lr $2");
  EXPECT_THAT(text,
              HasSubstr("the values of --num-layers, --hidden-size, --num-attention-heads and 2 others depend on the "
                        "output of a command"));
  EXPECT_THAT(text, HasSubstr("the value of --min-lr depends on $2"));
  size_t first = text.find("which only the shell knows"), second = text.find("which only the shell knows", first + 1);
  EXPECT_EQ(text.find("which only the shell knows", second + 1), std::string::npos);
}

// The error names the variable that the value depends on, and how to give it.
TEST(ImportArgs, UnknownValuesNameTheVariable) {
  std::string text = errorsOf("S=$((TOKENS / 4096))\nOUT=$ROOT/out\nA=(--lr-decay-iters $S --save $OUT)\n" + small +
                              "${A[@]} --lr 1 --lr-decay-style cosine");
  EXPECT_THAT(text, HasSubstr("x.sh:1:3: error: the value of --lr-decay-iters depends on $TOKENS, which only the shell "
                              "knows; give --env TOKENS=VALUE"));
  EXPECT_THAT(text, Not(HasSubstr("ROOT")));
  EXPECT_THAT(
      errorsOf("if [ $SIZE = 7b ]; then\n  L=1e-3\nelse\n  L=1e-4\nfi\n" + small + "--lr $L"),
      HasSubstr("x.sh:4:5: error: the value of --lr depends on $SIZE (line 1), which only the shell knows; give "
                "--env SIZE=VALUE"));
  EXPECT_THAT(
      errorsOf("torchrun --nproc_per_node 8 --nnodes $NODES " + small, "h100_dgx"),
      HasSubstr("the number of devices depends on $NODES, which only the shell knows; give --env NODES=VALUE, or "
                "--cluster NAME:HOSTSxDEVICES"));
}

TEST(ImportArgs, ModelsOfLlamasKind) {
  const std::string llama = small + "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
                                    "--hidden-dropout 0 --attention-dropout 0 --swiglu ";
  auto model = [&](const std::string &flags) {
    ImportedArgs args = importText(llama + flags);
    EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
    return args.yaml.substr(args.yaml.find("\nmodel:"));
  };
  EXPECT_THAT(model("--untie-embeddings-and-output-weights"),
              AllOf(HasSubstr("type: LlamaForCausalLM"), Not(HasSubstr("tie_word")), Not(HasSubstr("head_dim"))));
  EXPECT_THAT(model("--kv-channels 32"), AllOf(HasSubstr("type: LlamaForCausalLM"), HasSubstr("head_dim: 32"),
                                               HasSubstr("tie_word_embeddings: True")));
  EXPECT_THAT(model("--add-qkv-bias"), AllOf(HasSubstr("type: Qwen2ForCausalLM"), HasSubstr("type: Qwen2Config")));
  EXPECT_THAT(
      model("--qk-layernorm --kv-channels 128 --ffn-hidden-size 2816"),
      AllOf(HasSubstr("type: Qwen3ForCausalLM"), HasSubstr("head_dim: 128"), HasSubstr(" intermediate_size: 2816")));
  for (const char *flags : {"--use-rope-scaling", "--use-rope-scaling --add-qkv-bias"})
    EXPECT_THAT(model(flags), AllOf(HasSubstr("extend_method: LLAMA3"), HasSubstr("scaling_factor: 8\n"),
                                    HasSubstr("original_max_position: 8192")));
  EXPECT_THAT(model("--use-rope-scaling --rope-scaling-factor 32"), HasSubstr("scaling_factor: 32"));
  EXPECT_THAT(model("--rope-scaling-factor 32"), Not(HasSubstr("scaling_factor")));
  EXPECT_THAT(errorsOf(llama + "--num-experts 8 --untie-embeddings-and-output-weights --use-rope-scaling"),
              HasSubstr("only llama, qwen2, qwen3 and glm4_moe rescale rotary positions by this flag"));
  EXPECT_THAT(errorsOf(small + "--add-qkv-bias"), HasSubstr("only qwen2 has biases of q, k and v alone"));
  EXPECT_THAT(errorsOf(llama + "--num-experts 8"), HasSubstr("mixtral and qwen3_moe have a head of their own"));
}

TEST(ImportArgs, EveryFlagIsAccountedFor) {
  ImportedArgs args = importText(small + "--save $1 --log-interval 10 --data-impl mmap --split 8,1,1");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  std::map<std::string, bool> used;
  for (const ImportedKey &flag : args.flags) {
    used[flag.key] = flag.isUsed;
    EXPECT_FALSE(flag.effect.empty()) << flag.key;
    EXPECT_EQ(flag.where.line, 1);
  }
  EXPECT_EQ(used.size(), 11u);
  EXPECT_TRUE(used["--split"]);
  EXPECT_TRUE(used["--num-layers"]);
  EXPECT_FALSE(used["--save"]);
  EXPECT_FALSE(used["--data-impl"]);
}

TEST(ImportArgs, OptimizersHaveTheirNumbers) {
  std::string sgd = importText(small + "--optimizer sgd --sgd-momentum 0.8 --muon-momentum 0.5").yaml;
  EXPECT_THAT(sgd, HasSubstr("type: SGD"));
  EXPECT_THAT(sgd, HasSubstr("momentum: 0.8"));
  EXPECT_THAT(importText(small + "--optimizer sgd").yaml, HasSubstr("momentum: 0.9"));
  std::string muon =
      importText(small + "--optimizer muon --muon-tp-mode duplicated --muon-nesterov --muon-num-ns-steps 6 "
                         "--muon-extra-scale-factor 0.2")
          .yaml;
  for (const char *line : {"type: Muon", "momentum: 0.95", "nesterov: True", "ns_steps: 6", "scale_mode: spectral",
                           "extra_scale_factor: 0.2"})
    EXPECT_THAT(muon, HasSubstr(line));
  EXPECT_THAT(importText(small + "--optimizer dist_muon").yaml, HasSubstr("nesterov: False"));
  const std::string split = small + "--tensor-model-parallel-size 2 --optimizer muon ";
  for (const char *mode : {"duplicated", "distributed"})
    EXPECT_EQ(importText(split + "--muon-tp-mode " + mode).diagnostics.render(), "") << mode;
  for (const char *mode : {"", "--muon-tp-mode blockwise"})
    EXPECT_THAT(errorsOf(split + mode), HasSubstr("--muon-tp-mode: blockwise → duplicated")) << mode;
  EXPECT_THAT(errorsOf(split + "--muon-tp-mode none"), HasSubstr("no mode 'none' here, there are duplicated"));
  const std::string whole = small + "--tensor-model-parallel-size 1 --optimizer muon ";
  EXPECT_EQ(importText(whole + "--muon-tp-mode blockwise").diagnostics.render(), "");
  std::string clip = importText(small + "--optimizer muon --muon-tp-mode duplicated --qk-clip --qk-clip-threshold 50 "
                                        "--log-max-attention-logit")
                         .yaml;
  EXPECT_THAT(clip, HasSubstr("qk_clip_threshold: 50"));
  EXPECT_THAT(clip, HasSubstr("qk_clip_alpha: 0.5"));
  EXPECT_THAT(importText(small + "--qk-clip").yaml, HasSubstr("qk_clip_threshold: 100"));
  EXPECT_THAT(importText(small + "--qk-clip-threshold 50").yaml, Not(HasSubstr("qk_clip")));
  EXPECT_THAT(errorsOf(small + "--optimizer lion"), HasSubstr("no optimizer 'lion' here, there are adam, sgd, muon"));
}

TEST(ImportArgs, RatesOfTheVocabulary) {
  std::string yaml = importText(small + "--lr 1e-3 --decoupled-lr 5e-4 --decoupled-min-lr 1e-5").yaml;
  EXPECT_THAT(yaml, HasSubstr("decoupled_lr: 0.0005"));
  EXPECT_THAT(yaml, HasSubstr("decoupled_min_lr: 1e-05"));
}

TEST(ImportArgs, FlagsThatWouldChangeTheTrainingAreRefused) {
  for (const char *flags : {"--optimizer adam", "--weight-decay-incr-style constant", "--min-loss-scale 1.0",
                            "--dataloader-type single", "--optimizer adam --sgd-momentum 0.9"})
    EXPECT_EQ(importText(small + flags).diagnostics.render(), "") << flags;
  EXPECT_THAT(
      errorsOf(small + "--reset-position-ids --tokenizer-type HuggingFaceTokenizer --vocab-size 99"),
      HasSubstr("which token ends a document is not known of the script's tokenizer: leave --reset-position-ids "
                "out and use `espalier run --eod-token ID --reset-position-ids`"));
  EXPECT_THAT(errorsOf(small + "--reset-attention-mask --tokenizer-type HuggingFaceTokenizer --vocab-size 99"),
              HasSubstr("leave --reset-attention-mask out and use `espalier compile --set "
                        "train_dataset.data_loader.config.eod=ID --set "
                        "train_dataset.data_loader.config.reset_attention_mask=True`"));
  EXPECT_THAT(importText(small + "--fp16 --hysteresis 2").diagnostics.render(),
              HasSubstr("warning: one overflow halves the loss scale here"));
  EXPECT_EQ(importText(small + "--bf16 --hysteresis 2").diagnostics.render(), "");
}

TEST(ImportArgs, AllErrorsAtOnceWithTheirLocations) {
  std::string text =
      errorsOf("run.py --num-layers 24 --hidden-sise 8 \\\n --num-attention-heads $1 --seq-length x --fp16 1 \\\n"
               " --micro-batch-size 3 --global-batch-size 16 --lr-decay-style wavy --normalization");
  for (const char *part :
       {"x.sh:1:24: error: unknown flag --hidden-sise, did you mean '--hidden-size'?",
        "x.sh:2:24: error: the value of --num-attention-heads depends on $1, which only the shell knows",
        "x.sh:2:27: error: --seq-length must be a whole number of at least 1, got x",
        "error: --fp16 takes no value, got '1'",
        "error: global batch 16 is not a multiple of micro-batch size 3 · dp 4", "no decay 'wavy'",
        "--normalization takes one value, got 0", "error: --hidden-size is missing"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(errorsOf(small, "a100_80g_selene:1x6"), HasSubstr("tp 2 · pp 2 · cp 1 does not divide the 6 devices"));
  EXPECT_THAT(errorsOf("srun " + small, ""), HasSubstr("the number of devices is not stated"));
  EXPECT_THAT(errorsOf(small, ""), HasSubstr("give --cluster NAME, such as h100_dgx, a100_80g_selene or "
                                             "ascend_910b_64g"));
  EXPECT_THAT(errorsOf("echo hello"), HasSubstr("no flags are found"));
  EXPECT_THAT(errorsOf(small + "--bf16 --fp16 --num-query-groups 2"), HasSubstr("contradict each other"));
  EXPECT_THAT(errorsOf(small + "--recompute-granularity some --recompute-method odd --ffn-hidden-size 3000"),
              HasSubstr("gpt2 requires a multiple of --hidden-size 1024, got 3000"));
  EXPECT_THAT(errorsOf(small + "--tokenizer-type HuggingFaceTokenizer --init-method-std -1"),
              HasSubstr("give --vocab-size"));
}

TEST(ImportArgs, StartingWeightsOfAScript) {
  auto yaml = [](const std::string &flags) { return importText(small + flags).yaml; };
  EXPECT_THAT(yaml("--load w --finetune"), AllOf(HasSubstr("run_mode: finetune"), HasSubstr("load_checkpoint: 'w'"),
                                                 Not(HasSubstr("resume_training"))));
  EXPECT_THAT(yaml("--load w --skip-train"), AllOf(HasSubstr("run_mode: eval"), HasSubstr("load_checkpoint: 'w'")));
  EXPECT_THAT(yaml("--load w --save v"), AllOf(HasSubstr("load_checkpoint: 'w'"), HasSubstr("resume_training: True")));
  EXPECT_THAT(yaml("--load w --no-load-optim"), Not(HasSubstr("resume_training")));
  // With --load equal to --save, a script can be restarted; its first start has nothing to load.
  EXPECT_THAT(yaml("--load v --save v"), Not(HasSubstr("load_checkpoint")));
  EXPECT_THAT(errorsOf(small + "--finetune"), HasSubstr("--finetune without --load has no weights to start from"));
}

TEST(ImportArgs, DataOfTheScriptAreThoseOfTheRunFile) {
  auto yaml = [](const std::string &flags) { return importText(small + flags).yaml; };
  EXPECT_THAT(yaml("--data-path ./a --split 949,50,1"),
              AllOf(HasSubstr("data_path: ['./a']"), HasSubstr("split: '949,50,1'")));
  EXPECT_THAT(yaml("--data-path 0.7 a 0.3 b"), HasSubstr("data_path: ['0.7', 'a', '0.3', 'b']"));
  EXPECT_THAT(yaml("--mock-data"), HasSubstr("data_path: ['mock']"));
  EXPECT_THAT(yaml("--eod-mask-loss"), AllOf(HasSubstr("eod: 50256"), HasSubstr("eod_mask_loss: True")));
  EXPECT_THAT(yaml("--reset-position-ids --tokenizer-type NullTokenizer --vocab-size 99"),
              AllOf(HasSubstr("eod: 99"), HasSubstr("reset_position_ids: True")));
  EXPECT_THAT(yaml("--reset-attention-mask"), AllOf(HasSubstr("eod: 50256"), HasSubstr("reset_attention_mask: True")));
  // Values that only the shell knows are given when the run starts.
  ImportedArgs args = importText(small + "--data-path $1 --split $2");
  EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  EXPECT_THAT(args.yaml, Not(HasSubstr("train_dataset")));
}

// Scripts choose between mock data and real data by a condition.
TEST(ImportArgs, ConditionsChooseTheData) {
  const std::string script = "D=${4:-\"MOCK\"}\nif [[ $D == MOCK ]]; then\n  ARGS+=(\n    \"--mock-data\"\n    "
                             "\"--split '99,1,0'\"\n  )\nelse\n  ARGS+=(\n    \"--data-path $D\"\n    \"--split "
                             "'99,1,0'\"\n  )\nfi\n";
  ImportedArgs args = importText(script + small + "${ARGS[@]}");
  EXPECT_EQ(args.diagnostics.render(), "");
  EXPECT_THAT(args.yaml, HasSubstr("data_path: ['mock']  # --mock-data"));
  EXPECT_THAT(args.yaml, HasSubstr("split: '99,1,0'"));
  ArgsOptions options;
  options.cluster = "a100_80g_selene:1x4";
  options.shell.arguments = {{4, "/data/text"}};
  EXPECT_THAT(importArgs("x.sh", script + small + "${ARGS[@]}", options).yaml, HasSubstr("data_path: ['/data/text']"));
  EXPECT_THAT(importText(small + "--mock-data --data-path x").diagnostics.render(),
              HasSubstr("warning: --mock-data wins over --data-path"));
  EXPECT_THAT(errorsOf(small + "--data-path"), HasSubstr("--data-path takes a value, got none"));
}

// What an unknown word behind a flag holds decides which flags the launch has.
TEST(ImportArgs, UnknownWordsBehindFlagsAreErrors) {
  const char *error =
      "which flags the launch has depends on $EXTRA, which only the shell knows; give --env EXTRA=VALUE";
  for (const char *flags : {"--seed 1 $EXTRA", "--bf16 $EXTRA", "--save $1 $EXTRA", "--log-interval 1 $EXTRA"})
    EXPECT_THAT(errorsOf(small + flags), HasSubstr(error)) << flags;
  ArgsOptions options;
  options.cluster = "a100_80g_selene:1x4";
  options.shell.environment = {{"EXTRA", ""}};
  EXPECT_EQ(importArgs("x.sh", small + "--bf16 $EXTRA", options).diagnostics.render(), "");
  options.shell.environment = {{"EXTRA", "--seed 7"}};
  EXPECT_THAT(importArgs("x.sh", small + "--bf16 $EXTRA", options).yaml, HasSubstr("seed: 7"));
}

// Paths that only the shell knows are given when the run starts.
TEST(ImportArgs, UnknownPathsOfCheckpointsAreLeftToTheRun) {
  for (const char *flags : {"--load $1 --save $1", "--load $1/a --save $2", "--load $(pwd)/x --no-load-optim",
                            "--load $1 --finetune", "--load $1 --skip-train"}) {
    ImportedArgs args = importText(small + flags);
    EXPECT_FALSE(args.diagnostics.hasErrors()) << flags << args.diagnostics.render();
    EXPECT_THAT(args.yaml, Not(HasSubstr("load_checkpoint"))) << flags;
    EXPECT_TRUE(std::ranges::any_of(args.flags, [](const ImportedKey &flag) {
      return flag.key == "--load" && flag.effect.starts_with("give it at the run");
    }));
  }
}

TEST(ImportArgs, FilesOfModelFlagsSayWhatIsMissing) {
  EXPECT_THAT(
      errorsOf("MODEL_ARGS=\"\n --num-layers 2\n --hidden-size 64\"\nMOE_ARGS=(--num-experts 8)\nN=2\n"),
      HasSubstr("x.sh: error: no command of the script launches a .py file, so that launcher, batch and parallel "
                "sizes are missing; $MODEL_ARGS, $MOE_ARGS holds flags"));
}

TEST(ImportArgs, PlaceholdersAreErrorsAtTheirLocation) {
  std::string text =
      errorsOf("CHECKPOINT_PATH=<Specify path>\nDATA_PATH=<Specify path and file prefix>_text_document\n" + small +
               "--save $CHECKPOINT_PATH --load $CHECKPOINT_PATH --data-path $DATA_PATH "
               "--vocab-file <path to vocab>/vocab.json --merge-file \"<Specify>\"");
  for (const char *part :
       {"x.sh:1:17: error: the value of --save is a placeholder, <Specify path>; write yours in its place",
        "x.sh:1:17: error: the value of --load is a placeholder",
        "x.sh:2:11: error: the value of --data-path is a placeholder, <Specify path and file prefix>_text_document;",
        "error: the value of --vocab-file is a placeholder, <path to vocab>/vocab.json;",
        "error: the value of --merge-file is a placeholder, <Specify>;"})
    EXPECT_THAT(text, HasSubstr(part));
}

// 16 samples, micro-batch size 1, one replica.
TEST(ImportArgs, TheRunOfTheScriptIsALineOfTheRunFile) {
  auto line = [](const std::string &flags) {
    std::string yaml = importText(small + flags).yaml;
    return yaml.starts_with("#")
               ? yaml.substr(yaml.find("espalier run"), yaml.find("\nseed") - yaml.find("espalier run"))
               : "";
  };
  EXPECT_EQ(line("--train-iters 100 --save ./c --load ./c --save-interval 10 --eval-interval 5 --eval-iters 2"),
            "espalier run RUN.plan --steps 100 --checkpoint ./c --save-every 10 --eval-every 5 --eval-batches 32");
  EXPECT_EQ(line("--train-samples 160 --save \"my c\" --eval-iters 0"),
            "espalier run RUN.plan --steps 10 --checkpoint 'my c'");
  EXPECT_EQ(line("--save 'a\nb: c' --save-interval 3"), "espalier run RUN.plan --save-every 3");
  EXPECT_EQ(line("--save $1 --load $1"), "");
  EXPECT_EQ(line("--train-iters 7 --save-interval 3 x"), "espalier run RUN.plan --steps 7");
  EXPECT_EQ(line("--skip-train --load w --train-iters 3"), "");
  EXPECT_THAT(errorsOf(small + "--train-iters x"), HasSubstr("--train-iters must be a whole number"));
}

TEST(ImportArgs, TheVocabularyIsThatOfTheScriptsFile) {
  ArgsOptions options;
  options.cluster = "a100_80g_selene:1x4";
  options.readVocabulary = [](const std::string &file) -> std::optional<ScriptVocabulary> {
    return file == "v.json" ? std::optional(ScriptVocabulary{2000, 7})
           : file == "x"    ? std::optional(ScriptVocabulary{})
                            : std::nullopt;
  };
  auto imported = [&](const std::string &flags) { return importArgs("x.sh", small + flags, options); };
  EXPECT_THAT(imported("--vocab-file v.json --eod-mask-loss").yaml,
              AllOf(HasSubstr("vocab_size: 2000"), HasSubstr("eod: 7")));
  EXPECT_THAT(imported("--vocab-file elsewhere.json").yaml, HasSubstr("vocab_size: 50257"));
  EXPECT_THAT(imported("--vocab-file v.json --vocab-size 3000").yaml, HasSubstr("vocab_size: 3000"));
  EXPECT_THAT(imported("--vocab-file x").diagnostics.render(),
              HasSubstr("error: x is no vocab.json: an object of tokens and their ids"));
}

TEST(ImportArgs, Gpt2HasNeitherExpertsNorNormsOfHeads) {
  EXPECT_THAT(errorsOf(small + "--num-experts 8"), HasSubstr("gpt2 has no experts"));
  EXPECT_THAT(errorsOf(small + "--qk-layernorm"), HasSubstr("gpt2 has no norms of q and k"));
}
