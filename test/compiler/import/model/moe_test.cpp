// Mixture of experts: sizes from moe_config, the ep axis as a part of data_parallel, and unsupported settings.
#include "compiler/import/run/import_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::HasSubstr;

ImportedRun shipped(const std::string &name, std::vector<std::string> sets = {}) {
  ImportOptions options;
  options.sets = std::move(sets);
  return importRun(ESPALIER_SOURCE_DIR "/configs/" + name + ".yaml", options);
}

ImportedRun mixtral(std::vector<std::string> sets) { return shipped("mixtral_8x7b", std::move(sets)); }

/// Returns settings for a pinned plan on 64 devices with the same global batch of 256.
std::vector<std::string> pinned(std::vector<std::string> more) {
  std::vector<std::string> sets = {"parallel.parallel_mode=1", "parallel_config.data_parallel=16",
                                   "parallel_config.model_parallel=4", "runner_config.gradient_accumulation_steps=16"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(MixtureOfExperts, HasThePublishedSize) {
  ImportedRun run = mixtral({});
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.model.parameterCount(), 46702792704);
  EXPECT_TRUE(run.config.model.hasExperts());
  EXPECT_EQ(run.config.model.dims.at("capacity"), 1280); // 1.25 * 4096 * 2 / 8
}

/// The number of parameters equals the published number of Hugging Face.
TEST(MixtureOfExperts, Qwen3HasThePublishedSizes) {
  struct Published {
    const char *name;
    int64_t layers, hidden, heads, ffn, parameters;
  };
  for (auto [name, layers, hidden, heads, ffn, parameters] :
       {Published{"qwen3_30b_a3b", 48, 2048, 32, 768, 30532122624},
        Published{"qwen3_235b_a22b", 94, 4096, 64, 1536, 235093634560}}) {
    const int64_t kvHeads = 4, headDim = 128, experts = 128, vocabulary = 151936;
    int64_t attention = 2 * hidden * (heads + kvHeads) * headDim, norms = 2 * hidden + 2 * headDim;
    int64_t layer = attention + norms + experts * (hidden + 3 * hidden * ffn);
    ImportedRun run = shipped(name);
    ASSERT_TRUE(run.ok()) << run.diagnostics.render();
    EXPECT_EQ(run.config.model.parameterCount(), layers * layer + 2 * vocabulary * hidden + hidden);
    EXPECT_EQ(run.config.model.parameterCount(), parameters);
    EXPECT_EQ(run.config.model.dims.at("capacity"), 320); // 1.25 * 4096 * 8 / 128
  }
}

TEST(MixtureOfExperts, SizesComeFromEitherSection) {
  ImportedRun run = mixtral({"moe_config=null", "model.model_config.num_local_experts=16",
                             "model.model_config.num_experts_per_tok=1", "moe_config.capacity_factor=100"});
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.model.dims.at("expert"), 16);
  EXPECT_EQ(run.config.model.dims.at("choice"), 1);
  EXPECT_EQ(run.config.model.dims.at("capacity"), 4096); // a token uses at most one slot of an expert
}

/// A capacity of 0 or less, in either section, is a slot for each token.
TEST(MixtureOfExperts, NoCapacityDropsNoToken) {
  for (const char *factor : {"0", "-1", "0.0"})
    for (const char *section : {"moe_config.", "model.model_config."}) {
      std::string set = std::string(section) + "capacity_factor=" + factor;
      ImportedRun run = mixtral({"moe_config=null", "moe_config.expert_num=8", set});
      ASSERT_TRUE(run.ok()) << run.diagnostics.render();
      EXPECT_EQ(run.config.model.dims.at("capacity"), 4096) << set;
      EXPECT_TRUE(run.config.model.splitsSequence());
    }
  ImportedRun least = mixtral({"moe_config.capacity_factor=1e-9"});
  ASSERT_TRUE(least.ok()) << least.diagnostics.render();
  EXPECT_EQ(least.config.model.dims.at("capacity"), 1);
}

TEST(MixtureOfExperts, DataParallelHoldsTheExpertAxis) {
  ImportedRun run = mixtral(pinned({"parallel_config.expert_parallel=4"}));
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  EXPECT_EQ(run.config.pins.dp, 4);
  EXPECT_EQ(run.config.pins.ep, 4);
  EXPECT_EQ(run.config.globalBatch, 256);
  ImportedRun free = mixtral({"planner.pin.ep=8", "planner.pin.dp=2", "planner.pin.tp=2"});
  ASSERT_TRUE(free.ok()) << free.diagnostics.render();
  EXPECT_EQ(free.config.globalBatch, 256);
}

TEST(MixtureOfExperts, TheBalancingLossHasAWeight) {
  auto weightOf = [](const ImportedRun &run) {
    for (const OpDescription &op : run.config.model.segment("block").ops)
      if (op.kind == "balance_loss")
        return op.numbers.at("factor");
    return -1.0;
  };
  EXPECT_EQ(weightOf(mixtral({})), 0.001);
  EXPECT_EQ(weightOf(mixtral({"moe_config.aux_loss_factor=0.05"})), 0.05);
  EXPECT_EQ(weightOf(shipped("qwen3_30b_a3b", {"model.model_config.router_aux_loss_coef=0.01"})), 0.01);
  ImportedRun gpt = shipped("tiny_gpt", {"moe_config.aux_loss_factor=0.05", "moe_config.expert_num=1"});
  EXPECT_TRUE(gpt.ok());
  EXPECT_FALSE(gpt.config.model.hasExperts());
}

struct Wrong {
  std::vector<std::string> sets;
  std::string text;
};

class MixtureFault : public testing::TestWithParam<Wrong> {};

TEST_P(MixtureFault, IsReportedWithItsLocation) {
  ImportedRun run = mixtral(GetParam().sets);
  EXPECT_FALSE(run.ok());
  EXPECT_THAT(run.diagnostics.render(), HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Mixtral, MixtureFault,
    testing::Values(
        Wrong{{"moe_config.num_experts_chosen=9"}, "num_experts_chosen is 9, must be at most 8 (expert_num)"},
        Wrong{{"moe_config.expert_num=1", "moe_config.num_experts_chosen=1"}, "expert_num is 1, must be at least 2"},
        Wrong{{"model.model_config.num_local_experts=8"},
              "'num_local_experts' and 'expert_num' mean the same, keep one of them"},
        Wrong{{"moe_config.aux_loss_factor=-1"}, "aux_loss_factor is -1, must be at least 0"},
        Wrong{{"planner.pin.ep=3"}, "devices, cluster h100_dgx has 64"},
        Wrong{{"planner.pin={ep: 8, tp: 2, expert_tensor_parallel: False}"},
              "expert 8 is not a multiple of tp 2 · ep 8"},
        Wrong{{"planner.pin.ep=16"}, "expert 8 is not a multiple of ep 16; ep: 16 → 8"},
        Wrong{pinned({"parallel_config.expert_parallel=3"}), "data_parallel 16 is not a multiple of expert_parallel 3"},
        Wrong{pinned({"parallel_config.expert_parallel=16"}),
              "expert 8 is not a multiple of ep 16; expert_parallel: 16 → 8"},
        Wrong{pinned({"parallel_config.expert_parallel=2", "parallel_config.model_parallel=2"}),
              "dp 8 · tp 2 · pp 1 · cp 1 · ep 2 needs 32 devices, cluster h100_dgx has 64; data_parallel: 16 → 32"},
        Wrong{{"planner.pin={dp: 2, ep: 2, tp: 16, micro_batch_size: 3, micro_batches: 1}"},
              "global batch 256 is not dp 2 · ep 2 · micro-batch size 3 · micro-batches 1"}));

} // namespace
} // namespace espalier
