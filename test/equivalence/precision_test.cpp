// Storage types: bf16 and f16 runs follow the f32 run within their precision. After an overflow, all ranks skip the
// step.
#include "test/equivalence/training.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

std::vector<std::string> storage(const std::string &type) {
  return {"model.model_config.param_init_type=" + type, "model.model_config.compute_dtype=" + type,
          "optimizer.master_weights=True"};
}

class Precision : public testing::TestWithParam<std::string> {};

/// Ten steps in a type of p significant bits: each loss is within 8 u of f32, where u = 2^-p is the largest relative
/// error of one rounding. The activation is rounded eight times on its way to the loss: after the embedding, after the
/// two sums of each of three blocks, and after the last norm. Other roundings change only one term of such a sum.
TEST_P(Precision, FollowsSinglePrecision) {
  RunConfig single = equivalenceRun("gpt2"), run = equivalenceRun("gpt2", storage(GetParam()));
  double unit = GetParam() == "bfloat16" ? 0x1p-8 : 0x1p-11;
  TrainingRecord expected = trainCompiled(single, planOf(single, {}), 10);
  for (const SplitCase &split :
       {SplitCase{}, SplitCase{.name = "", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 1},
        SplitCase{.name = "", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 3}}) {
    TrainingRecord actual = trainCompiled(run, planOf(run, split), 10);
    ASSERT_EQ(actual.losses.size(), 10u);
    for (int step = 0; step < 10; ++step)
      EXPECT_NEAR(actual.losses[step], expected.losses[step], 8 * unit * expected.losses[step]) << "step " << step;
  }
}

/// Returns settings with which gradients are also accumulated and reduced in the type.
std::vector<std::string> gradientStorage(const std::string &type) {
  std::vector<std::string> sets = storage(type);
  sets.push_back("parallel.gradient_fp32_sync=False");
  return sets;
}

/// A gradient of one micro-batch on one rank differs from that of a run with f32 gradients by one rounding.
TEST_P(Precision, AGradientIsRoundedOnce) {
  double unit = GetParam() == "bfloat16" ? 0x1p-8 : 0x1p-11;
  for (const char *model : {"gpt2", "llama"}) {
    RunConfig single = equivalenceRun(model, storage(GetParam())),
              run = equivalenceRun(model, gradientStorage(GetParam()));
    TrainingRecord expected = trainCompiled(single, planOf(single, {}), 1),
                   actual = trainCompiled(run, planOf(run, {}), 1);
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_NE(actual.gradients, expected.gradients);
    EXPECT_EQ(compareGradients(expected.gradients[0], actual.gradients[0], unit), "");
  }
}

/// Gradients in the type: losses have the bounds of FollowsSinglePrecision, and so has the norm of the first step.
TEST_P(Precision, GradientsInTheTypeFollowSinglePrecision) {
  RunConfig single = equivalenceRun("gpt2"), run = equivalenceRun("gpt2", gradientStorage(GetParam()));
  double unit = GetParam() == "bfloat16" ? 0x1p-8 : 0x1p-11;
  TrainingRecord expected = trainCompiled(single, planOf(single, {}), 10);
  for (const SplitCase &split :
       {SplitCase{.name = "accumulation", .microBatches = 4}, SplitCase{.name = "dp", .dp = 2, .microBatches = 2},
        SplitCase{.name = "tp", .tp = 2, .sequenceParallel = true}, SplitCase{.name = "pp", .pp = 2, .microBatches = 4},
        SplitCase{.name = "zero 1", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 1},
        SplitCase{.name = "zero 2", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 2},
        SplitCase{.name = "zero 3", .dp = 4, .microBatches = 2, .zero = 3}}) {
    TrainingRecord actual = trainCompiled(run, planOf(run, split), 10);
    ASSERT_EQ(actual.losses.size(), 10u);
    EXPECT_NEAR(actual.norms[0], expected.norms[0], 8 * unit * expected.norms[0]) << split.name;
    for (int step = 0; step < 10; ++step)
      EXPECT_NEAR(actual.losses[step], expected.losses[step], 8 * unit * expected.losses[step])
          << split.name << ", step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Precision, testing::Values("bfloat16", "float16"),
                         [](const auto &info) { return info.param; });

/// A loss scale of 2^26 overflows f16 in the first steps. Under every split all ranks skip the same steps, halve the
/// scale each time, and then train. The losses of skipped steps are those of the initial model.
TEST(LossScale, OverflowSkipsTheStepOnAllRanks) {
  std::vector<std::string> sets = storage("float16");
  sets.push_back("runner_wrapper.scale_sense.type=DynamicLossScaleUpdateCell");
  sets.push_back("runner_wrapper.scale_sense.loss_scale_value=67108864");
  RunConfig run = equivalenceRun("gpt2", sets);
  TrainingRecord unsplit = trainCompiled(run, planOf(run, {}), 16);
  SplitCase shared{.name = "", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 1}, inParts = shared;
  inParts.zero = 3;
  TrainingRecord split = trainCompiled(run, planOf(run, shared), 16);
  TrainingRecord parts = trainCompiled(run, planOf(run, inParts), 16);
  for (const TrainingRecord *record : {&unsplit, &split, &parts}) {
    ASSERT_EQ(record->applied.size(), 16u);
    EXPECT_FALSE(record->applied.front());
    EXPECT_TRUE(record->applied.back());
    double scale = 67108864;
    for (size_t step = 0; step < 16; ++step) {
      scale = record->applied[step] ? scale : scale / 2;
      EXPECT_EQ(record->lossScales[step], scale) << "step " << step;
    }
  }
  for (const TrainingRecord *record : {&split, &parts})
    for (size_t step = 0; step < 16; ++step)
      EXPECT_NEAR(record->losses[step], unsplit.losses[step], 8 * 0x1p-11 * unsplit.losses[step]) << "step " << step;
}

} // namespace
} // namespace espalier
