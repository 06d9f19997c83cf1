// Imports Megatron's flags of multi-head latent attention, and checks that the run file describes the same model.
#include "test/compiler/import/megatron/imported_script.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::HasSubstr;

const std::string dense =
    "pretrain.py --num-layers 6 --hidden-size 256 --num-attention-heads 8 --seq-length 512 --global-batch-size 16 "
    "--tensor-model-parallel-size 2 --swiglu --normalization RMSNorm --position-embedding-type rope --bf16 "
    "--disable-bias-linear --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 "
    "--vocab-size 1000 --ffn-hidden-size 640 --norm-epsilon 1e-6 --qk-layernorm --multi-latent-attention "
    "--kv-lora-rank 48 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 24 --kv-channels 128 ";

/// These are the flags of scripts for DeepSeek-V3. --moe-router-pre-softmax has no effect on sigmoids.
const std::string mixture =
    dense + "--q-lora-rank 64 --num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 96 "
            "--moe-shared-expert-intermediate-size 96 --moe-layer-freq '([0]*2+[1]*4)' --moe-router-pre-softmax "
            "--moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-num-groups 4 "
            "--moe-router-group-topk 2 --moe-router-topk-scaling-factor 2.5 --moe-expert-capacity-factor 2 ";

const OpDescription &opOf(const ModelDescription &model, const std::string &kind, const std::string &output) {
  for (const OpDescription &op : model.segment(kind).ops)
    if (op.outputs.at(0) == output)
      return op;
  throw std::runtime_error("no op makes " + output);
}

TEST(LatentFlags, AreDeepseekV3) {
  ModelDescription model = modelOf(mixture);
  EXPECT_EQ(model.name, "deepseek_v3");
  for (auto [dim, size] : {std::pair("q_rank", 64),
                           {"kv_rank", 48},
                           {"nope_dim", 32},
                           {"rope_dim", 16},
                           {"value_dim", 24},
                           {"heads", 8},
                           {"ffn", 640},
                           {"ffn_expert", 96},
                           {"ffn_shared", 96},
                           {"expert", 16},
                           {"choice", 4}})
    EXPECT_EQ(model.dims.at(dim), size) << dim;
  std::vector<std::pair<std::string, int>> runs;
  for (const SegmentRun &part : model.runs)
    runs.emplace_back(part.kind, part.count);
  EXPECT_EQ(runs, (std::vector<std::pair<std::string, int>>{{"embed", 1}, {"block", 2}, {"experts", 4}, {"head", 1}}));
  EXPECT_EQ(opOf(model, "experts", "weights").numbers.at("normalize"), 1);
  EXPECT_EQ(opOf(model, "experts", "weights").numbers.at("scale"), 2.5);
  EXPECT_EQ(opOf(model, "experts", "ids").numbers.at("groups"), 4);
}

TEST(LatentFlags, WithoutALatentOfQueriesOrExperts) {
  ModelDescription model = modelOf(dense);
  EXPECT_EQ(model.name, "deepseek_v3_full_q");
  EXPECT_EQ(model.runs.at(1).kind, "block");
  EXPECT_EQ(model.runs.at(1).count, 6);
  EXPECT_FALSE(model.dims.contains("q_rank"));
}

/// Megatron scales by YaRN unless --rope-type says otherwise; the factor is 1 unless a flag gives it.
TEST(LatentFlags, ScaledPositions) {
  ModelDescription model = modelOf(mixture + "--rotary-scaling-factor 40 --mscale 0.8 --mscale-all-dim 0.5");
  const OpDescription &rope = opOf(model, "block", "qr");
  EXPECT_EQ(rope.strings.at("scaling"), "yarn");
  EXPECT_EQ(rope.numbers.at("factor"), 40);
  auto magnitude = [](double weight) { return 0.1 * weight * std::log(40) + 1; };
  EXPECT_NEAR(rope.numbers.at("attention_factor"), magnitude(0.8) / magnitude(0.5), 1e-12);
  EXPECT_NEAR(opOf(model, "block", "mixed").numbers.at("scale"), magnitude(0.5) * magnitude(0.5) / std::sqrt(48),
              1e-12);
  EXPECT_FALSE(opOf(modelOf(mixture), "block", "qr").strings.contains("scaling"));
}

TEST(LatentFlags, ContradictionsAreErrors) {
  auto errorsOf = [](const std::string &text) { return importText(text).diagnostics.render(); };
  std::string bare = mixture;
  bare.erase(bare.find("--qk-layernorm"), 14);
  EXPECT_THAT(errorsOf(bare), HasSubstr("deepseek_v3 has norms of the latents: add --qk-layernorm"));
  EXPECT_THAT(errorsOf(mixture + "--add-qkv-bias"), HasSubstr("deepseek_v3 has no biases of q, k and v"));
  EXPECT_THAT(errorsOf(dense + "--num-experts 8"), HasSubstr("deepseek_v3 chooses experts by biased sigmoids"));
  EXPECT_THAT(errorsOf(mixture + "--rope-type linear"), HasSubstr("no rotary positions 'linear' here"));
  EXPECT_THAT(errorsOf(mixture + "--rotary-scaling-factor 0.5"), HasSubstr("scaled by at least 1, got 0.5"));
}

} // namespace
} // namespace espalier
