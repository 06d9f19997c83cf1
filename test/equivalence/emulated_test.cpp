// Plans for GPUs, on the emulated device, against the unsplit model on the CPU: losses and every gradient.
#include "test/equivalence/training.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace espalier {
namespace {

constexpr int64_t steps = 3;

// Ranks are threads of this process, each with a device of its own.
[[maybe_unused]] const int devices = setenv("ESPALIER_EMULATOR_DEVICES", "4", /*overwrite=*/1);

/// A model of the suite with heads of 8, the least that attention on GPUs takes, and one plan of it.
struct Row {
  std::string name, file;
  std::vector<std::string> sets;
  SplitCase split;
};

std::vector<std::string> dropout() {
  return {"model.model_config.embedding_dropout_prob=0.1", "model.model_config.hidden_dropout_rate=0.2",
          "model.model_config.attention_dropout_rate=0.1"};
}

std::vector<std::string> storage(const std::string &type) {
  return {"model.model_config.param_init_type=" + type, "model.model_config.compute_dtype=" + type,
          "optimizer.master_weights=True"};
}

RunConfig runOf(const Row &row) {
  std::vector<std::string> sets = row.sets;
  sets.push_back("model.model_config.hidden_size=32");
  return equivalenceRun(row.file, sets);
}

class Emulated : public testing::TestWithParam<Row> {};

TEST_P(Emulated, TrainsLikeTheCpu) {
  RunConfig run = runOf(GetParam());
  TrainingRecord expected = trainCompiled(run, planOf(run, {}), steps);
  TrainingRecord actual = trainCompiled(run, planOf(run, GetParam().split), steps, 1, "cuda");
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], 1e-4 * expected.norms[step]) << "step " << step;
    EXPECT_EQ(compareGradients(expected.gradients[step], actual.gradients[step]), "") << "step " << step;
  }
}

constexpr auto none = planner::Recompute::None, selective = planner::Recompute::Selective,
               full = planner::Recompute::Full;

INSTANTIATE_TEST_SUITE_P(
    Plans, Emulated,
    testing::Values(Row{"gpt2", "gpt2", {}, {}}, Row{"gpt2_accumulate2", "gpt2", {}, {.microBatches = 2}},
                    Row{"gpt2_accumulate8", "gpt2", {}, {.microBatches = 8}},
                    Row{"gpt2_selective", "gpt2", {}, {.recompute = selective}},
                    Row{"gpt2_full", "gpt2", {}, {.recompute = full}},
                    Row{"gpt2_mixed", "gpt2", {}, {.layerRecompute = {full, none, selective}}},
                    Row{"gpt2_dropout", "gpt2", dropout(), {}},
                    Row{"gpt2_dropout_accumulate2_full", "gpt2", dropout(), {.microBatches = 2, .recompute = full}},
                    Row{"llama", "llama", {}, {}}, Row{"llama_accumulate2", "llama", {}, {.microBatches = 2}},
                    Row{"llama_full", "llama", {}, {.recompute = full}},
                    Row{"llama_selective", "llama", {}, {.microBatches = 4, .recompute = selective}}),
    [](const auto &info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Splits, Emulated,
    testing::Values(Row{"gpt2_dp2", "gpt2", {}, {.dp = 2}}, Row{"gpt2_tp2", "gpt2", {}, {.tp = 2}},
                    Row{"gpt2_pp2", "gpt2", {}, {.pp = 2, .microBatches = 4}},
                    Row{"gpt2_dp2_zero1", "gpt2", {}, {.dp = 2, .microBatches = 2, .zero = 1}},
                    Row{"gpt2_tp2_sequence", "gpt2", dropout(), {.tp = 2, .sequenceParallel = true}},
                    Row{"llama_dp2_pp2_full", "llama", {}, {.dp = 2, .pp = 2, .microBatches = 2, .recompute = full}},
                    Row{"llama_tp2_pp2_zero1", "llama", {}, {.tp = 2, .pp = 2, .microBatches = 4, .zero = 1}}),
    [](const auto &info) { return info.param.name; });

class EmulatedStorage : public testing::TestWithParam<std::string> {};

/// Within 8 roundings of the storage type of the run in f32, for the reason that precision_test.cpp gives.
TEST_P(EmulatedStorage, FollowsSinglePrecision) {
  double unit = GetParam() == "bfloat16" ? 0x1p-8 : 0x1p-11;
  for (const char *file : {"gpt2", "llama"}) {
    RunConfig single = runOf({"", file, {}, {}}), run = runOf({"", file, storage(GetParam()), {}});
    TrainingRecord expected = trainCompiled(single, planOf(single, {}), steps);
    TrainingRecord actual = trainCompiled(run, planOf(run, {.microBatches = 2}), steps, 1, "cuda");
    ASSERT_EQ(actual.losses.size(), expected.losses.size());
    for (size_t step = 0; step < expected.losses.size(); ++step)
      EXPECT_NEAR(actual.losses[step], expected.losses[step], 8 * unit * expected.losses[step])
          << file << ", step " << step;
    TrainingRecord again = trainCompiled(run, planOf(run, {.microBatches = 2}), steps, 1, "cuda");
    EXPECT_EQ(again.losses, actual.losses);
    EXPECT_EQ(again.gradients, actual.gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedStorage, testing::Values("bfloat16", "float16"),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace espalier
