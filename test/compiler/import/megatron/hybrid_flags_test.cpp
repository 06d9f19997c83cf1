// Imports Megatron's flags of models whose layers are given by a pattern, and checks that the run file describes the
// same model.
#include "compiler/import/megatron/hybrid_pattern.h"
#include "test/compiler/import/megatron/imported_script.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string block =
    "pretrain_mamba.py --is-hybrid-model --spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec "
    "--hidden-size 256 --num-attention-heads 8 --group-query-attention --num-query-groups 2 --kv-channels 48 "
    "--ffn-hidden-size 640 --seq-length 512 --micro-batch-size 1 --global-batch-size 16 --vocab-size 1000 --bf16 "
    "--normalization RMSNorm --disable-bias-linear --position-embedding-type none --squared-relu --norm-epsilon 1e-6 "
    "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 --mamba-num-heads 12 "
    "--mamba-head-dim 16 --mamba-num-groups 4 --mamba-state-dim 24 ";

/// These are flags of scripts for Nemotron 3.
const std::string experts =
    "--num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 96 --moe-shared-expert-intermediate-size 200 "
    "--moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-topk-scaling-factor 2.5 ";

std::string findingsOf(const std::string &flags) { return importText(flags).diagnostics.render(); }

std::vector<std::string> layersOf(const ModelDescription &model) {
  std::vector<std::string> kinds;
  for (const SegmentRun &run : model.runs)
    for (int layer = 0; layer < run.count; ++layer)
      kinds.push_back(run.kind);
  return kinds;
}

TEST(HybridFlags, AreNemotronH) {
  ModelDescription model = modelOf(block + experts + "--hybrid-layer-pattern MEM*M-");
  EXPECT_EQ(model.name, "nemotron_h");
  EXPECT_THAT(layersOf(model), ElementsAre("embed", "mixer", "experts", "mixer", "block", "mixer", "dense", "head"));
  for (auto [dim, size] : {std::pair("hidden", 256),
                           {"kv_heads", 2},
                           {"head_dim", 48},
                           {"ffn", 640},
                           {"ffn_expert", 96},
                           {"ffn_shared", 200},
                           {"expert", 16},
                           {"state_groups", 4},
                           {"state_heads", 3},
                           {"state_value", 16},
                           {"state_key", 24},
                           {"taps", 4}})
    EXPECT_EQ(model.dims.at(dim), size) << dim;
}

TEST(HybridFlags, MixersHaveMegatronsSizesByDefault) {
  std::string bare = block.substr(0, block.find("--mamba-num-heads"));
  ModelDescription model = modelOf(bare + "--hybrid-override-pattern M-M- --num-layers 4 --hybrid-mlp-ratio 0.5");
  for (auto [dim, size] : {std::pair("state_groups", 8), {"state_heads", 1}, {"state_value", 64}, {"state_key", 128}})
    EXPECT_EQ(model.dims.at(dim), size) << dim;
  EXPECT_THAT(layersOf(modelOf(bare + "--hybrid-layer-pattern *-*-")),
              ElementsAre("embed", "block", "dense", "block", "dense", "head"));
}

TEST(HybridFlags, BordersAreStages) {
  const std::string split = block + "--pipeline-model-parallel-size 2 ";
  EXPECT_THAT(importText(split + "--hybrid-layer-pattern 'M-M*|M-'").yaml,
              AllOf(HasSubstr("stage_layers: [4, 2]  # --hybrid-layer-pattern\n"), Not(HasSubstr("virtual_stages"))));
  EXPECT_THAT(
      importText(split + "--hybrid-layer-pattern 'M|-|M*|-'").yaml,
      AllOf(HasSubstr("stage_layers: [1, 1, 2, 1]  # --hybrid-layer-pattern\n"), HasSubstr("virtual_stages: 2")));
  EXPECT_THAT(findingsOf(split + "--hybrid-layer-pattern 'M|-|M'"), HasSubstr("3 stages, not a multiple of pp 2"));
  EXPECT_THAT(findingsOf(split + "--hybrid-layer-pattern 'M-|M*' --decoder-first-pipeline-num-layers 1"),
              HasSubstr("error: the borders (|) of --hybrid-layer-pattern say the stages"));
}

TEST(HybridFlags, OtherLayersAreRefusedWithTheReason) {
  for (auto [pattern, reason] : {std::pair("MG", "gated delta nets (G) are layers of qwen3_next"),
                                 {"MD", "sparse attention (D) is in layers of deepseek_v32"},
                                 {"[M-]M", "leave out the brackets"},
                                 {"M-M*/M*/M*", "leave out '/M*/M*'"},
                                 {"MxM", "'x' is no layer, wanted M (Mamba-2)"},
                                 {"|", "the pattern has no layers"}})
    EXPECT_THAT(findingsOf(block + fmt::format("--hybrid-layer-pattern '{}'", pattern)),
                AllOf(HasSubstr("x.sh:1:"), HasSubstr("error: --hybrid-layer-pattern: "), HasSubstr(reason)));
  EXPECT_EQ(readHybridPattern("M-M*/").fault, "");
}

TEST(HybridFlags, ContradictingFlagsAreErrors) {
  const std::string pattern = block + "--hybrid-layer-pattern M-M* ";
  EXPECT_EQ(findingsOf(pattern), "");
  for (auto [flags, reason] :
       {std::pair("--num-layers 5", "the pattern has 4 layers; --num-layers: 5 → 4"),
        {"--swiglu", "which has no --swiglu; leave it out"},
        {"--mtp-num-layers 1", "which has no --mtp-num-layers"},
        {"--num-experts 8", "the pattern has no layers with experts (E)"},
        {"--mtp-hybrid-override-pattern M", "--mtp-hybrid-override-pattern has no counterpart here"}})
    EXPECT_THAT(findingsOf(pattern + flags), HasSubstr(reason));
  EXPECT_THAT(findingsOf(block + "--hybrid-layer-pattern ME"), HasSubstr("(E): add --num-experts"));
  EXPECT_THAT(findingsOf(block + "--hybrid-layer-pattern ME --num-experts 8"), HasSubstr("biased sigmoids"));
  for (auto [old, other, reason] : {std::tuple("--squared-relu ", "", "have squared ReLUs: add --squared-relu"),
                                    {"--normalization RMSNorm ", "", "has RMS norms, got LayerNorm"},
                                    {"--disable-bias-linear ", "", "has no biases of projections"},
                                    {"embedding-type none", "embedding-type rope", "has no positions, got rope"},
                                    {"--hidden-dropout 0 ", "", "has no dropout"},
                                    {"mamba_stack_spec", "other_spec", "no layers '"}}) {
    std::string text = pattern;
    text.replace(text.find(old), std::string(old).size(), other);
    EXPECT_THAT(findingsOf(text), HasSubstr(reason));
  }
  EXPECT_THAT(findingsOf("x.py --num-layers 4 --squared-relu"), HasSubstr("--squared-relu has no counterpart here"));
}

} // namespace
} // namespace espalier
