// Clipping, skipping, loss scale, learning rates and initial values at known points.
#include "runtime/train/step_scalars.h"

#include "runtime/abi.h"
#include "runtime/mesh.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"
#include "runtime/train/initial_value.h"
#include "runtime/train/learning_rate.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace espalier::rt {
namespace {

pb::LearningRate rate(const std::string &kind) {
  pb::LearningRate schedule;
  schedule.set_kind(kind);
  schedule.set_peak(1.0);
  schedule.set_end(0.1);
  schedule.set_warmup_init(0.2);
  schedule.set_power(2);
  schedule.set_cycles(0.5);
  schedule.set_warmup_steps(10);
  schedule.set_total_steps(110);
  return schedule;
}

TEST(LearningRate, WarmsUpLinearly) {
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 0, 0), 0.2);
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 5, 0), 0.6);
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 10, 0), 1.0);
}

TEST(LearningRate, DecaysByKind) {
  EXPECT_DOUBLE_EQ(learningRate(rate("constant"), 60, 0), 1.0);
  EXPECT_DOUBLE_EQ(learningRate(rate("linear"), 60, 0), 0.55);
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 60, 0), 0.55);
  EXPECT_DOUBLE_EQ(learningRate(rate("cosine"), 35, 0), 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(learningRate(rate("polynomial"), 60, 0), 0.1 + 0.9 * 0.25);
  EXPECT_DOUBLE_EQ(learningRate(rate("inverse_sqrt"), 40, 0), 0.5);
}

TEST(LearningRate, StaysAtTheEndAfterTheLastStep) {
  for (const char *kind : {"linear", "cosine", "polynomial"})
    EXPECT_DOUBLE_EQ(learningRate(rate(kind), 5000, 0), 0.1) << kind;
}

TEST(LearningRate, WarmupStableDecayFallsOnlyAtTheEnd) {
  pb::LearningRate schedule = rate("wsd");
  schedule.set_decay_steps(20);
  EXPECT_DOUBLE_EQ(learningRate(schedule, 89, 0), 1.0);
  EXPECT_DOUBLE_EQ(learningRate(schedule, 100, 0), 0.1 + 0.9 * (2 * std::sqrt(0.5) - 1));
  EXPECT_DOUBLE_EQ(learningRate(schedule, 110, 0), 0.1);
}

TEST(LearningRate, TakesTheTotalFromTheRunWhereTheScheduleHasNone) {
  pb::LearningRate schedule = rate("linear");
  schedule.set_total_steps(-1);
  schedule.set_warmup_ratio(0.1);
  EXPECT_DOUBLE_EQ(learningRate(schedule, 10, 100), 1.0);
  EXPECT_DOUBLE_EQ(learningRate(schedule, 55, 100), 0.55);
}

TEST(LearningRate, RefusesUnknownKinds) { EXPECT_THROW(learningRate(rate("sawtooth"), 50, 100), PlanError); }

struct Sums {
  Sums(float loss, float tokens, float squares, float scale) {
    scalars[LossSum] = loss;
    scalars[TokenCount] = tokens;
    scalars[SquaredNorm] = squares;
    scalars[LossScale] = scale;
  }
  Scalars scalars{};
};

/// 10 tokens at scale 4: a raw norm of 120 is a normalised one of 3.
TEST(UpdateScalars, ClipsTheNormalisedNorm) {
  pb::Settings settings;
  Sums sums(50, 10, 120 * 120, 4);
  updateScalars(settings, sums.scalars);
  EXPECT_FLOAT_EQ(sums.scalars[GradientScale], 1.0f / 40);
  settings.set_max_grad_norm(1.5);
  updateScalars(settings, sums.scalars);
  EXPECT_NEAR(sums.scalars[GradientScale], 0.5 / 40, 1e-6);
  EXPECT_EQ(sums.scalars[Apply], 1);
  settings.set_max_grad_norm(100);
  updateScalars(settings, sums.scalars);
  EXPECT_FLOAT_EQ(sums.scalars[GradientScale], 1.0f / 40);
}

TEST(UpdateScalars, SkipsWhatIsNotFinite) {
  float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (Sums sums : {Sums(infinity, 10, 1, 1), Sums(1, 10, infinity, 1), Sums(nan, 10, 1, 1), Sums(1, 10, nan, 1),
                    Sums(0, 0, 0, 1)}) {
    updateScalars({}, sums.scalars);
    EXPECT_EQ(sums.scalars[Apply], 0);
    EXPECT_EQ(sums.scalars[GradientScale], 0);
  }
}

pb::Settings dynamic() {
  pb::Settings settings;
  settings.set_dynamic_loss_scale(true);
  settings.set_initial_loss_scale(1024);
  settings.set_loss_scale_factor(2);
  settings.set_loss_scale_window(3);
  settings.set_minimum_loss_scale(256);
  settings.set_global_batch(8);
  settings.set_beta1(0.9);
  settings.set_beta2(0.99);
  return settings;
}

TEST(EndStep, RaisesTheScaleAfterCleanStepsAndLowersItAfterAnOverflow) {
  pb::Settings settings = dynamic();
  ScalarState state = initialScalars(settings);
  auto step = [&](bool overflows) {
    Sums sums(1, 10, overflows ? std::numeric_limits<float>::infinity() : 1, state.lossScale);
    updateScalars(settings, sums.scalars);
    endStep(settings, sums.scalars, state);
    return state.lossScale;
  };
  EXPECT_EQ(step(false), 1024);
  EXPECT_EQ(step(false), 1024);
  EXPECT_EQ(step(false), 2048);
  EXPECT_EQ(step(false), 2048);
  EXPECT_EQ(step(true), 1024); // and counts clean steps anew
  EXPECT_EQ(step(false), 1024);
  EXPECT_EQ(step(false), 1024);
  EXPECT_EQ(step(false), 2048);
  for (int i = 0; i < 9; ++i)
    step(true);
  EXPECT_EQ(state.lossScale, 256);
  EXPECT_EQ(state.step, 17);
  EXPECT_EQ(state.updates, 7); // skipped steps do not advance the bias corrections
  EXPECT_EQ(state.consumed, 17 * 8);
}

/// A batch whose labels are all masked says nothing about the scale and is no update.
TEST(EndStep, WithoutLabelsIsNoOverflow) {
  pb::Settings settings = dynamic();
  ScalarState state = initialScalars(settings);
  for (int i = 0; i < 2; ++i) {
    Sums sums(1, 10, 1, state.lossScale);
    updateScalars(settings, sums.scalars);
    endStep(settings, sums.scalars, state);
  }
  for (int i = 0; i < 5; ++i) {
    Sums sums(0, 0, 0, state.lossScale);
    updateScalars(settings, sums.scalars);
    StepOutcome outcome = endStep(settings, sums.scalars, state);
    EXPECT_FALSE(outcome.hasLabels());
    EXPECT_FALSE(outcome.isApplied);
    EXPECT_TRUE(std::isnan(outcome.loss)); // of no token there is no mean
  }
  EXPECT_EQ(state.lossScale, 1024);
  EXPECT_EQ(state.updates, 2);
  EXPECT_EQ(state.cleanSteps, 2u);
  EXPECT_EQ(state.consumed, 7 * 8);
}

TEST(BeginStep, CorrectsTheBiasOfAppliedSteps) {
  pb::Settings settings = dynamic();
  ScalarState state = initialScalars(settings);
  state.step = 10;
  state.updates = 1;
  Scalars scalars = beginStep(settings, state, 100);
  EXPECT_FLOAT_EQ(scalars[BiasCorrection1], 1 / (1 - 0.81f));
  EXPECT_NEAR(scalars[BiasCorrection2], 1 / (1 - 0.99 * 0.99), 1e-4);
  EXPECT_EQ(scalars[LossSum], 0);
  EXPECT_EQ(scalars[LossScale], 1024);
}

TEST(InitialValue, IsNormalAndKeyedByName) {
  double sum = 0, squares = 0, cubes = 0;
  int64_t n = 200000;
  for (int64_t i = 0; i < n; ++i) {
    double z = initialNormal(initialKey(1, "block.0.weight"), i);
    sum += z;
    squares += z * z;
    cubes += z * z * z;
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.01);
  EXPECT_NEAR(cubes / n, 0, 0.03);
  auto first = [](uint64_t seed, const char *name) { return initialValue(seed, name, InitialKind::Normal, 1, 0); };
  EXPECT_NE(first(1, "a"), first(1, "b"));
  EXPECT_NE(first(1, "a"), first(2, "a"));
  EXPECT_EQ(initialValue(1, "a", InitialKind::Ones, 0, 5), 1);
  EXPECT_EQ(initialValue(1, "a", InitialKind::Zeros, 0, 5), 0);
}

/// [5, 3] padded to [6, 4], rows over tp 3, columns over dp 2: rank (dp 1, tp 2) holds rows 4-5 and
/// columns 2-3, of which only (4, 2) is no padding.
TEST(ParameterBlock, SkipsPadding) {
  pb::Plan plan;
  for (auto [name, size] : {std::pair("dp", 2), {"tp", 3}}) {
    plan.add_mesh()->set_name(name);
    plan.mutable_mesh(plan.mesh_size() - 1)->set_size(size);
  }
  Mesh mesh(plan);
  pb::Parameter parameter;
  for (int size : {5, 3})
    parameter.add_shape(size);
  for (int size : {6, 4})
    parameter.add_padded_shape(size);
  parameter.add_dims()->add_axes("tp");
  parameter.add_dims()->add_axes("dp");
  std::vector<int> owners(15, 0);
  for (int rank = 0; rank < 6; ++rank) {
    ParameterBlock block(parameter, mesh, rank);
    EXPECT_EQ(block.elements(), 4);
    block.visitRuns([&](int64_t local, int64_t global, int64_t count) {
      EXPECT_LE(local + count, 4);
      for (int64_t i = 0; i < count; ++i)
        ++owners[global + i];
    });
  }
  EXPECT_EQ(owners, std::vector<int>(15, 1));
  std::vector<int64_t> runs;
  ParameterBlock(parameter, mesh, 5).visitRuns([&](int64_t local, int64_t global, int64_t count) {
    runs.insert(runs.end(), {local, global, count});
  });
  EXPECT_EQ(runs, (std::vector<int64_t>{0, 14, 1}));
}

TEST(Mesh, NumbersRanksWithTheLastAxisFastest) {
  pb::Plan plan;
  for (auto [name, size] : {std::pair("pp", 2), {"dp", 3}, {"tp", 4}}) {
    plan.add_mesh()->set_name(name);
    plan.mutable_mesh(plan.mesh_size() - 1)->set_size(size);
  }
  Mesh mesh(plan);
  EXPECT_EQ(mesh.ranks(), 24);
  EXPECT_EQ(mesh.coordinate(17, "pp"), 1);
  EXPECT_EQ(mesh.coordinate(17, "dp"), 1);
  EXPECT_EQ(mesh.coordinate(17, "tp"), 1);
  EXPECT_EQ(mesh.coordinate(17, "cp"), 0);
  EXPECT_EQ(mesh.peer(17, 0), 5);
  std::vector<std::string> dp = {"dp"}, both = {"tp", "dp"};
  EXPECT_EQ(mesh.group(17, dp), (std::vector<int>{13, 17, 21}));
  EXPECT_EQ(mesh.group(5, both).size(), 12u);
  EXPECT_EQ(mesh.group(5, both).front(), 0);
  std::vector<uint32_t> stages = {1, 0};
  EXPECT_EQ(mesh.stageGroup(17, stages), (std::vector<int>{5, 17}));
}

} // namespace
} // namespace espalier::rt
