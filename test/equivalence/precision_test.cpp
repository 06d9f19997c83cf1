// Storage types: bf16 and f16 runs follow the f32 run as far as their digits go, and overflow skips a step on all
// ranks.
#include "test/equivalence/training.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

std::vector<std::string> storage(const std::string &type) {
  return {"model.model_config.param_init_type=" + type, "model.model_config.compute_dtype=" + type,
          "optimizer.master_weights=True"};
}

class Precision : public testing::TestWithParam<std::string> {};

/// Ten steps in a type of p significant bits: each loss within 8 units in the last place of that type.
TEST_P(Precision, FollowsSinglePrecision) {
  RunConfig single = equivalenceRun("gpt2"), run = equivalenceRun("gpt2", storage(GetParam()));
  double unit = GetParam() == "bfloat16" ? 0x1p-8 : 0x1p-11;
  TrainingRecord expected = trainCompiled(single, planOf(single, {}), 10);
  for (const SplitCase &split :
       {SplitCase{}, SplitCase{.name = "", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 1}}) {
    TrainingRecord actual = trainCompiled(run, planOf(run, split), 10);
    ASSERT_EQ(actual.losses.size(), 10u);
    for (int step = 0; step < 10; ++step)
      EXPECT_NEAR(actual.losses[step], expected.losses[step], 8 * unit * expected.losses[step]) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Precision, testing::Values("bfloat16", "float16"),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace espalier
