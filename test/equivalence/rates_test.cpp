// Groups of parameters have their own learning rates under every kind of plan.
#include "test/equivalence/splits.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

constexpr int64_t steps = 6;

/// The token table is tied to the head, and norms and matrices of a layer are in different groups.
std::vector<std::string> rateSets() {
  return {
      "lr_schedule.decoupled_lr=0.05",
      "grouped_lr_schedule.grouped=[{type: constant, params: [\"block.ln*\", head.lnf_weight], learning_rate: 1e-4}, "
      "{type: constant, params: [\"block.mlp_*\"], learning_rate: 0.02, weight_decay: 0.5}]"};
}

/// All parameters are in one group. `decay` is the decay of the optimizer, `ofGroup` a further key of the group.
std::vector<std::string> oneGroup(const std::string &decay, const std::string &ofGroup) {
  return {"optimizer.weight_decay=" + decay,
          "grouped_lr_schedule.grouped=[{type: constant, params: [\"*\"], learning_rate: 0.01" + ofGroup + "}]"};
}

void expectAlike(const TrainingRecord &expected, const TrainingRecord &actual) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
    EXPECT_EQ(compareGradients(expected.gradients[step], actual.gradients[step]), "") << "step " << step;
  }
}

class Rates : public testing::TestWithParam<SplitCase> {};

TEST_P(Rates, TrainLikeTheUnsplitModel) {
  RunConfig run = equivalenceRun("gpt2", rateSets());
  ASSERT_EQ(run.optimizer.rateGroups.size(), 3u);
  static const TrainingRecord unsplit = trainCompiled(run, planOf(run, {}), steps);
  expectAlike(unsplit, trainCompiled(run, planOf(run, GetParam()), steps));
}

INSTANTIATE_TEST_SUITE_P(Plans, Rates,
                         testing::Values(SplitCase{.name = "dp2_zero1", .dp = 2, .zero = 1},
                                         SplitCase{.name = "dp2_zero2", .dp = 2, .microBatches = 2, .zero = 2},
                                         SplitCase{.name = "dp4_zero3", .dp = 4, .zero = 3},
                                         SplitCase{.name = "tp2_sp", .tp = 2, .sequenceParallel = true},
                                         SplitCase{.name = "pp2", .pp = 2, .microBatches = 4},
                                         SplitCase{.name = "dp2_cp2", .dp = 2, .cp = 2}),
                         [](const auto &info) { return info.param.name; });

TEST(InterpretedRates, AreThoseOfTheCompiledRun) {
  RunConfig run = equivalenceRun("gpt2", rateSets());
  expectAlike(trainCompiled(run, planOf(run, {}), steps), trainInterpreted(run, planOf(run, {}), steps));
}

/// The groups have an effect from the second step on.
TEST(GroupRates, ChangeTheLoss) {
  RunConfig run = equivalenceRun("gpt2", rateSets()), plain = equivalenceRun("gpt2");
  TrainingRecord with = trainCompiled(run, planOf(run, {}), 2), without = trainCompiled(plain, planOf(plain, {}), 2);
  EXPECT_EQ(with.losses[0], without.losses[0]);
  EXPECT_NE(with.losses[1], without.losses[1]);
}

/// The decay of a group replaces that of the optimizer. Norms and biases do not decay.
TEST(GroupDecay, ReplacesTheDecayOfTheOptimizer) {
  for (const char *type : {"AdamW", "Muon"}) {
    auto lossesOf = [&](const std::string &decay, const std::string &ofGroup) {
      std::vector<std::string> sets = oneGroup(decay, ofGroup);
      sets.push_back(std::string("optimizer.type=") + type);
      RunConfig run = equivalenceRun("gpt2", sets);
      return trainCompiled(run, planOf(run, {}), 3).losses;
    };
    std::vector<double> expected = lossesOf("0.1", "");
    EXPECT_EQ(lossesOf("0.3", ", weight_decay: 0.1"), expected) << type;
    EXPECT_EQ(lossesOf("0", ", weight_decay: 0.1"), expected) << type;
    EXPECT_EQ(lossesOf("0.1", ", weight_decay: 0"), lossesOf("0", "")) << type;
    EXPECT_NE(lossesOf("0.3", ""), expected) << type;
  }
}

} // namespace
} // namespace espalier
