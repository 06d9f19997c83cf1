// Imports Megatron's flags of the format of matrix products and of the form of norms.
#include "test/compiler/import/megatron/imported_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string small = "pretrain.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
                          "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 16 ";

TEST(NormFlags, FormatsOfProductsAndNorms) {
  for (auto [flags, line] :
       {std::pair("--apply-layernorm-1p", "layernorm_zero_centered_gamma: True  # --apply-layernorm-1p\n"),
        {"--fp8-format hybrid --fp8-recipe delayed --fp8-param-gather", "matmul_format: fp8_hybrid  # --fp8-format\n"},
        {"--fp8-e4m3", "matmul_format: fp8_e4m3  # --fp8-e4m3\n"},
        {"--fp4-format e2m1 --fp4-recipe nvfp4", "matmul_format: fp4_e2m1  # --fp4-format\n"}}) {
    ImportedArgs args = importText(small + "--bf16 " + flags);
    EXPECT_EQ(args.diagnostics.render(), "") << flags;
    EXPECT_THAT(args.yaml, HasSubstr(line));
  }
}

TEST(NormFlags, LlamasBlockWithLayerNormIsStableLm) {
  const std::string marks = "--swiglu --position-embedding-type rope --disable-bias-linear --hidden-dropout 0 "
                            "--attention-dropout 0 --vocab-size 32000 --num-query-groups 4 --ffn-hidden-size 2816 ";
  ImportedArgs args = importText(small + marks + "--norm-epsilon 1e-6");
  ASSERT_EQ(args.diagnostics.render(), "");
  for (const char *line : {"type: StableLmForCausalLM", "layer_norm_eps: 1e-06", "rotary_pct: 1", "n_kv_heads: 4",
                           "tie_word_embeddings: True"})
    EXPECT_THAT(args.yaml, HasSubstr(line));
  EXPECT_THAT(args.yaml, Not(HasSubstr("rms_norm_eps")));
  EXPECT_THAT(importText(small + marks + "--qk-layernorm").diagnostics.render(),
              HasSubstr("has no --qk-layernorm; add --normalization RMSNorm"));
}

TEST(NormFlags, RecomputedExpertsAreAWarning) {
  ImportedArgs args =
      importText("x.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --lr 1e-4 "
                 "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
                 "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 "
                 "--vocab-size 128 --num-experts 4 --moe-expert-capacity-factor 1 --moe-layer-recompute");
  EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
  EXPECT_THAT(args.diagnostics.render(), HasSubstr("warning: experts are not recomputed alone"));
}

} // namespace
} // namespace espalier
