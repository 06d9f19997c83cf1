// Imports Megatron's flags of experts: how many, how tokens choose them, and how they are split.
#include "test/compiler/import/megatron/imported_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string errorsOf(const std::string &text, const std::string &cluster = "a100_80g_selene:1x4") {
  ImportedArgs args = importText(text, cluster);
  EXPECT_TRUE(args.diagnostics.hasErrors()) << args.yaml;
  return args.diagnostics.render();
}

/// 48 layers with 128 experts on 4 devices, sharded over all of them.
const std::string experts =
    "pretrain.py --num-layers 48 --hidden-size 2048 --num-attention-heads 32 --seq-length 4096 --global-batch-size 16 "
    "--tensor-model-parallel-size 2 --swiglu --normalization RMSNorm --position-embedding-type rope --bf16 "
    "--disable-bias-linear --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 "
    "--num-query-groups 4 --vocab-size 151936 --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 ";

TEST(ExpertFlags, ExpertsAndHowTokensChooseThem) {
  ImportedArgs args = importText(
      experts + "--qk-layernorm --kv-channels 128 --expert-model-parallel-size 2 --expert-tensor-parallel-size 2 "
                "--moe-layer-freq '([1]*48)' --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3 "
                "--moe-token-dispatcher-type alltoall --moe-grouped-gemm --moe-permute-fusion --rotary-percent 1.0 "
                "--moe-router-topk-scaling-factor 1.0");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  for (const char *line :
       {"type: Qwen3MoeForCausalLM", "head_dim: 128", "n_kv_heads: 4", "moe_intermediate_size: 768", "theta: 10000",
        "expert_parallel: 2", "data_parallel: 2", "expert_num: 128", "num_experts_chosen: 8", "capacity_factor: 0\n",
        "norm_topk_prob: True", "aux_loss_factor: 0.001"})
    EXPECT_THAT(args.yaml, HasSubstr(line));
  EXPECT_THAT(args.diagnostics.render(), HasSubstr("warning: aux_loss balances each micro-batch"));
  std::map<std::string, bool> used;
  for (const ImportedKey &flag : args.flags)
    used[flag.key] = flag.isUsed;
  EXPECT_TRUE(used["--expert-tensor-parallel-size"]);
  EXPECT_FALSE(used.at("--moe-permute-fusion"));
}

// Megatron drops no token without a capacity factor, or with a negative one.
TEST(ExpertFlags, NoTokenIsDroppedWithoutACapacity) {
  auto capacity = [](const std::string &flags) {
    ImportedArgs args = importText(experts + flags);
    EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
    size_t begin = args.yaml.find("capacity_factor: ") + 17;
    return args.yaml.substr(begin, args.yaml.find('\n', begin) - begin);
  };
  EXPECT_EQ(capacity(""), "0");
  EXPECT_EQ(capacity("--moe-expert-capacity-factor -1"), "0  # --moe-expert-capacity-factor");
  EXPECT_EQ(capacity("--moe-expert-capacity-factor 1"), "1  # --moe-expert-capacity-factor");
}

TEST(ExpertFlags, MixtralIsLlamaWithExperts) {
  ImportedArgs args = importText(experts + "--moe-router-pre-softmax --moe-expert-capacity-factor 1.25 "
                                           "--moe-router-load-balancing-type none --moe-aux-loss-coeff 0.1 "
                                           "--moe-z-loss-coeff 1e-3");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  for (const char *line :
       {"type: MixtralForCausalLM", "    intermediate_size: 768", "norm_topk_prob: False", "capacity_factor: 1.25",
        "aux_loss_factor: 0  # --moe-aux-loss-coeff", "z_loss_factor: 0.001  # --moe-z-loss-coeff"})
    EXPECT_THAT(args.yaml, HasSubstr(line));
  EXPECT_EQ(args.diagnostics.render(), "");
}

/// The router of DeepSeek-V3 is glm4_moe.
TEST(ExpertFlags, ABiasedRouterIsGlm4) {
  const std::string router = experts + "--add-qkv-bias --kv-channels 128 --moe-router-score-function sigmoid "
                                       "--moe-router-enable-expert-bias --moe-shared-expert-intermediate-size 1536 ";
  ImportedArgs args = importText(
      router + "--moe-router-bias-update-rate 1e-4 --moe-router-topk-scaling-factor 2.5 --rotary-percent 0.5 "
               "--moe-router-num-groups 8 --moe-router-group-topk 4 --moe-layer-freq '([0]*3+[1]*45)' "
               "--ffn-hidden-size 8192 --moe-aux-loss-coeff 1e-4");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  for (const char *line :
       {"type: Glm4MoeForCausalLM", "first_k_dense_replace: 3", "    intermediate_size: 8192",
        "moe_intermediate_size: 768", "shared_expert_num: 2", "topk_bias_update_rate: 0.0001",
        "routed_scaling_factor: 2.5", "n_group: 8", "topk_group: 4", "rotary_pct: 0.5", "head_dim: 128"})
    EXPECT_THAT(args.yaml, HasSubstr(line));
  EXPECT_THAT(errorsOf(router + "--moe-layer-freq 2"), HasSubstr("dense layers come before all layers with experts"));
  EXPECT_THAT(importText(router + "--qk-layernorm").yaml, HasSubstr("type: glm4_moe_qk_norm"));
  EXPECT_THAT(errorsOf(experts + "--add-qkv-bias --moe-router-enable-expert-bias"),
              AllOf(HasSubstr("a bias is added to sigmoids, got softmax"),
                    HasSubstr("wanted a multiple of --moe-ffn-hidden-size 768, got 0")));
}

/// If experts are not sharded over tensor ranks, Megatron's ep includes the tensor ranks.
TEST(ExpertFlags, UnshardedExpertsUseTensorRanks) {
  ImportedArgs args = importText(experts + "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1");
  ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  EXPECT_THAT(args.yaml, HasSubstr("  expert_parallel: 2  #"));
  EXPECT_THAT(args.yaml, HasSubstr("    expert_tensor_parallel: False"));
  EXPECT_THAT(errorsOf(experts + "--expert-model-parallel-size 1 --expert-tensor-parallel-size 1"),
              HasSubstr("tensor ranks hold whole experts, too: ep 1 is not a multiple of tp 2"));
  EXPECT_THAT(errorsOf(experts + "--expert-tensor-parallel-size 4"),
              HasSubstr("over all tensor ranks or over none; --expert-tensor-parallel-size: 4 → 2 or 1"));
}

/// Megatron's experts take context ranks before those of dp, if there are enough of them.
TEST(ExpertFlags, ExpertsLieOnContextRanks) {
  const std::string cluster = "a100_80g_selene:1x8", flags = experts + "--context-parallel-size 2 ";
  for (auto [more, ep, isWhole] : {std::tuple("--expert-model-parallel-size 4", 2, false),
                                   {"--expert-model-parallel-size 2", 1, false},
                                   {"--expert-model-parallel-size 8 --expert-tensor-parallel-size 1", 2, true}}) {
    ImportedArgs args = importText(flags + more, cluster);
    ASSERT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
    EXPECT_THAT(args.yaml, HasSubstr("  expert_parallel: " + std::to_string(ep) + "  #"));
    EXPECT_THAT(args.yaml, HasSubstr("    experts_over_context: True"));
    EXPECT_EQ(args.yaml.find("expert_tensor_parallel: False") != std::string::npos, isWhole) << more;
  }
  EXPECT_THAT(importText(flags + "--expert-model-parallel-size 1", cluster).yaml,
              testing::Not(HasSubstr("experts_over_context")));
  EXPECT_THAT(errorsOf(flags + "--expert-model-parallel-size 16 --expert-tensor-parallel-size 1", cluster),
              HasSubstr("dp 2 is not a multiple of ep 16 / tp 2 / cp 2"));
}

TEST(ExpertFlags, MlpsHaveTheWidthOfMegatron) {
  std::string text = experts;
  text.erase(text.find("--num-experts"));
  EXPECT_THAT(importText(text).yaml, HasSubstr("intermediate_size: 5440")); // 8/3 of 2048, down to a multiple of 64
  EXPECT_THAT(importText(text + "--num-experts 8").yaml, HasSubstr("intermediate_size: 5440"));
}

TEST(ExpertFlags, ExpertsThatAreNotBuiltAreRefused) {
  std::string text = errorsOf(
      experts + "--kv-channels 128 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --moe-layer-freq 2 "
                "--moe-router-load-balancing-type sinkhorn --moe-shared-expert-intermediate-size 768 "
                "--moe-router-score-function sigmoid --rotary-percent 0.5");
  for (const char *part :
       {"heads are hidden 2048 / heads 32 wide, got 128", "dp 2 is not a multiple of ep 8 / tp 2",
        "every layer has experts here, got 2; --moe-layer-freq: 2 → 1",
        "balanced by aux_loss, seq_aux_loss or none here, got sinkhorn",
        "--moe-shared-expert-intermediate-size has no counterpart here: shared experts are built with "
        "--moe-router-enable-expert-bias; leave it out or say 0",
        "sigmoids are built with --moe-router-enable-expert-bias", "--rotary-percent → 1"})
    EXPECT_THAT(text, HasSubstr(part));
}

} // namespace
} // namespace espalier
