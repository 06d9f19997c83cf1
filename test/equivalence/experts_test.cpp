// Mixture-of-experts models: every kind of plan, compiled and interpreted, against the unsplit model in the
// interpreter. Compares losses and every gradient of each step. The capacity is too small for all tokens, so that
// token drops must agree too. Interpreted plans train four steps.
#include "test/equivalence/splits.h"

#include "runtime/run/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

namespace espalier {
namespace {

constexpr int64_t steps = 10, interpretedSteps = 4;

const TrainingRecord &unsplit() {
  static const TrainingRecord record = [] {
    RunConfig run = equivalenceRun("mixtral");
    return trainInterpreted(run, planOf(run, {}), steps);
  }();
  return record;
}

/// Compares the steps of `actual`, of which there must be `count`, with the first steps of `expected`.
void expectEqualTraining(const TrainingRecord &actual, const TrainingRecord &expected, size_t count) {
  ASSERT_EQ(actual.losses.size(), count);
  ASSERT_GE(expected.losses.size(), count);
  for (size_t step = 0; step < count; ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], 1e-4 * expected.norms[step]) << "step " << step;
    EXPECT_EQ(compareGradients(expected.gradients[step], actual.gradients[step]), "") << "step " << step;
    EXPECT_EQ(actual.loads[step], expected.loads[step]) << "step " << step;
  }
}

class Experts : public testing::TestWithParam<SplitCase> {};

TEST_P(Experts, CompiledTrainLikeTheUnsplitModel) {
  RunConfig run = equivalenceRun("mixtral");
  expectEqualTraining(trainCompiled(run, planOf(run, GetParam()), steps), unsplit(), steps);
}

TEST_P(Experts, InterpretedTrainLikeTheUnsplitModel) {
  RunConfig run = equivalenceRun("mixtral");
  expectEqualTraining(trainInterpreted(run, planOf(run, GetParam()), interpretedSteps), unsplit(), interpretedSteps);
}

INSTANTIATE_TEST_SUITE_P(Plans, Experts, testing::ValuesIn(expertSplits()),
                         [](const auto &info) { return info.param.name; });

/// With equal experts all probabilities are equal, so that each of the two layers adds about its factor under every
/// plan. Without the factor nothing is added, and the router's gradient differs.
TEST(Experts, BalanceIsAPartOfTheLoss) {
  RunConfig run = equivalenceRun("mixtral", {"moe_config.aux_loss_factor=0"});
  TrainingRecord free = trainInterpreted(run, planOf(run, {.ep = 2, .microBatches = 2}), 1);
  EXPECT_NEAR(unsplit().losses.at(0) - free.losses.at(0), 2 * 0.1, 0.05);
  std::string difference = compareGradients(unsplit().gradients.at(0), free.gradients.at(0));
  EXPECT_THAT(difference, testing::HasSubstr("block.0.router_weight"));
  EXPECT_THAT(difference, testing::Not(testing::HasSubstr("head")));
}

/// Heads have a separate width and norms, whose gradients are partial over tp.
TEST(Experts, Qwen3TrainsLikeTheUnsplitModel) {
  RunConfig run = equivalenceRun("qwen3_moe");
  TrainingRecord expected = trainInterpreted(run, planOf(run, {}), 3);
  for (const SplitCase &split : {SplitCase{.tp = 2, .ep = 2, .sequenceParallel = true},
                                 SplitCase{.dp = 2, .tp = 2, .pp = 2, .ep = 2, .microBatches = 2, .zero = 1}}) {
    expectEqualTraining(trainInterpreted(run, planOf(run, split), 3), expected, 3);
    expectEqualTraining(trainCompiled(run, planOf(run, split), 3), expected, 3);
  }
}

/// A sink has a gradient from all positions of its head, of which ranks have parts.
TEST(Experts, GptOssTrainsLikeTheUnsplitModel) {
  RunConfig run = equivalenceRun("gpt_oss");
  TrainingRecord expected = trainInterpreted(run, planOf(run, {}), 3);
  for (const SplitCase &split :
       {SplitCase{}, SplitCase{.tp = 2, .ep = 2, .splitsExperts = false, .sequenceParallel = true},
        SplitCase{.dp = 4, .microBatches = 2, .zero = 3},
        SplitCase{
            .dp = 2, .tp = 2, .pp = 2, .ep = 2, .microBatches = 2, .zero = 1, .recompute = planner::Recompute::Full}}) {
    expectEqualTraining(trainInterpreted(run, planOf(run, split), 3), expected, 3);
    expectEqualTraining(trainCompiled(run, planOf(run, split), 3), expected, 3);
  }
  RunConfig limited = equivalenceRun("gpt_oss", documentSets());
  TrainingRecord ofDocuments = trainInterpreted(limited, planOf(limited, {}), 3);
  EXPECT_THAT(compareGradients(ofDocuments.gradients.at(0), expected.gradients.at(0)), testing::Not(""));
  SplitCase split = {.tp = 2, .ep = 2, .microBatches = 2, .recompute = planner::Recompute::Selective};
  expectEqualTraining(trainCompiled(limited, planOf(limited, split), 3), ofDocuments, 3);
}

/// Values are shorter than keys. The rotary columns of a key, the router and its bias are whole on every rank.
TEST(Experts, DeepSeekV3TrainsLikeTheUnsplitModel) {
  RunConfig run = equivalenceRun("deepseek_v3_experts");
  TrainingRecord expected = trainInterpreted(run, planOf(run, {}), 3);
  for (const SplitCase &split :
       {SplitCase{.tp = 2, .ep = 2, .sequenceParallel = true},
        SplitCase{
            .dp = 2, .tp = 2, .pp = 2, .ep = 2, .microBatches = 2, .zero = 1, .recompute = planner::Recompute::Full}}) {
    expectEqualTraining(trainInterpreted(run, planOf(run, split), 3), expected, 3);
    expectEqualTraining(trainCompiled(run, planOf(run, split), 3), expected, 3);
  }
}

/// GLM-4.5 has norms of q and k. DeepSeek-V3 may lack a latent of queries. With a slot for each token, none is dropped.
TEST(Experts, VariantsTrainLikeTheUnsplitModel) {
  for (const auto &[file, sets] :
       {std::pair<const char *, std::vector<std::string>>{"glm4_moe", {"model.arch.type=glm4_moe_qk_norm"}},
        {"deepseek_v3_full_q", {}},
        {"glm4_moe", {"moe_config.capacity_factor=-1"}},
        {"llama4_text", {}},
        {"llama4_text", {"train_dataset.data_loader.config={eod: 32, reset_attention_mask: True}"}},
        {"mixtral", {"moe_config.capacity_factor=-1", "moe_config.z_loss_factor=0.01"}}}) {
    RunConfig run = equivalenceRun(file, sets);
    TrainingRecord expected = trainInterpreted(run, planOf(run, {}), 3);
    SplitCase split = {.dp = 2, .tp = 2, .pp = 2, .ep = 2, .microBatches = 2, .zero = 1};
    expectEqualTraining(trainInterpreted(run, planOf(run, split), 3), expected, 3);
    expectEqualTraining(trainCompiled(run, planOf(run, split), 3), expected, 3);
    expectEqualTraining(trainCompiled(run, planOf(run, {.tp = 2, .ep = 2, .sequenceParallel = true}), 3), expected, 3);
  }
}

/// With a slot for each token, ranks of context route the tokens of their part of a sequence.
TEST(Experts, DroplessMixturesSplitSequences) {
  for (const auto &[file, sets] : {std::pair<const char *, std::vector<std::string>>{"gpt_oss", {}},
                                   {"deepseek_v3_experts", {}},
                                   {"llama4_text", {}},
                                   {"mixtral", {"moe_config.z_loss_factor=0.01"}}}) {
    std::vector<std::string> dropless = sets;
    dropless.emplace_back("moe_config.capacity_factor=0");
    RunConfig run = equivalenceRun(file, dropless);
    TrainingRecord expected = trainInterpreted(run, planOf(run, {}), 3);
    for (const SplitCase &split : {SplitCase{.cp = 2}, SplitCase{.cp = 2, .ep = 2, .zero = 1},
                                   SplitCase{.dp = 2,
                                             .tp = 2,
                                             .cp = 2,
                                             .ep = 2,
                                             .microBatches = 2,
                                             .zero = 3,
                                             .sequenceParallel = true,
                                             .zigzag = true},
                                   SplitCase{.tp = 2,
                                             .pp = 2,
                                             .cp = 2,
                                             .ep = 2,
                                             .splitsExperts = false,
                                             .microBatches = 2,
                                             .sequenceParallel = true,
                                             .recompute = planner::Recompute::Full}}) {
      expectEqualTraining(trainInterpreted(run, planOf(run, split), 3), expected, 3);
      expectEqualTraining(trainCompiled(run, planOf(run, split), 3), expected, 3);
    }
  }
}

/// Experts over context ranks (folded meshes), with and without ep, and over tensor ranks, too.
class FoldedExperts : public testing::TestWithParam<std::tuple<const char *, SplitCase>> {};

TEST_P(FoldedExperts, TrainLikeTheUnsplitModel) {
  const auto &[file, split] = GetParam();
  static std::map<std::string, TrainingRecord> records;
  RunConfig run = equivalenceRun(file, foldedSets());
  if (!records.contains(file))
    records[file] = trainInterpreted(run, planOf(run, {}), 3);
  expectEqualTraining(trainInterpreted(run, planOf(run, split), 3), records[file], 3);
  expectEqualTraining(trainCompiled(run, planOf(run, split), 3), records[file], 3);
}

INSTANTIATE_TEST_SUITE_P(Plans, FoldedExperts,
                         testing::Combine(testing::Values("mixtral", "qwen3_moe", "deepseek_v3_experts", "gpt_oss"),
                                          testing::ValuesIn(foldedSplits())),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
                         });

/// Routers with weights of 0 give all experts one score, so that each token of the first step chooses the first
/// experts, and the other experts have no token. No token is dropped.
TEST(Experts, TokensOfOneExpertAndEmptyExperts) {
  for (const char *file : {"mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3_experts"}) {
    RunConfig run = equivalenceRun(file, {"moe_config.capacity_factor=0", "moe_config.num_experts_chosen=1"});
    for (SegmentDescription &segment : run.model.segments)
      for (ParameterDescription &parameter : segment.parameters)
        if (parameter.name == "router_weight")
          parameter.initializer.kind = rt::pb::Initialization::ZEROS;
    TrainingRecord expected = trainInterpreted(run, planOf(run, {}), 3);
    ASSERT_FALSE(expected.loads.at(0).empty()) << file;
    for (const auto &[layer, counts] : expected.loads.at(0)) { // the loads of the experts, and the dropped tokens
      EXPECT_GT(counts.front(), 0) << file << " " << layer;
      EXPECT_EQ(std::accumulate(counts.begin() + 1, counts.end(), int64_t(0)), 0) << file << " " << layer;
    }
    for (const SplitCase &split :
         {SplitCase{.tp = 2, .ep = 2, .sequenceParallel = true},
          SplitCase{.cp = 2, .ep = 2, .microBatches = 2, .zero = 3},
          SplitCase{.dp = 2, .tp = 2, .pp = 2, .ep = 2, .microBatches = 2, .zero = 1, .sequenceParallel = true}}) {
      expectEqualTraining(trainInterpreted(run, planOf(run, split), 3), expected, 3);
      expectEqualTraining(trainCompiled(run, planOf(run, split), 3), expected, 3);
    }
  }
}

/// Models with the other options of experts. Each split is compiled with one of them and interpreted with the other,
/// and the next split the other way round. GLM-4's bias is updated in each step.
class OtherExperts : public testing::TestWithParam<size_t> {
protected:
  static constexpr int64_t otherSteps = 4;

  static void expectEqual(const char *file, bool isCompiled) {
    static std::map<std::string, TrainingRecord> records;
    RunConfig run = equivalenceRun(file);
    if (!records.contains(file))
      records[file] = trainInterpreted(run, planOf(run, {}), otherSteps);
    planner::Plan plan = planOf(run, expertSplits()[GetParam()]);
    expectEqualTraining(isCompiled ? trainCompiled(run, plan, otherSteps) : trainInterpreted(run, plan, otherSteps),
                        records[file], otherSteps);
  }
};

TEST_P(OtherExperts, Qwen2TrainsLikeTheUnsplitModel) { expectEqual("qwen2_moe", GetParam() % 2 == 0); }
TEST_P(OtherExperts, Glm4TrainsLikeTheUnsplitModel) { expectEqual("glm4_moe", GetParam() % 2 == 1); }

INSTANTIATE_TEST_SUITE_P(Plans, OtherExperts, testing::Range(size_t{0}, expertSplits().size()),
                         [](const auto &info) { return expertSplits()[info.param].name; });

/// Returns settings of low-rank adapters beside the named modules.
std::vector<std::string> adapterSets(const std::string &modules) {
  return {
      "model.model_config.pet_config={pet_type: lora, lora_rank: 3, lora_alpha: 6, lora_dropout: 0, target_modules: " +
      modules + "}"};
}

/// Adapters of experts: each expert has matrices of its own, which ep distributes. The router and its bias are frozen.
class ExpertAdapters : public testing::TestWithParam<SplitCase> {
protected:
  static void expectEqual(const char *file, const std::string &modules) {
    static std::map<std::string, TrainingRecord> records;
    RunConfig run = equivalenceRun(file, adapterSets(modules));
    if (!records.contains(file))
      records[file] = trainInterpreted(run, planOf(run, {}), 3);
    for (const auto &[name, gradient] : records[file].gradients.at(0))
      EXPECT_THAT(name, testing::HasSubstr("_lora_"));
    expectEqualTraining(trainCompiled(run, planOf(run, GetParam()), 3), records[file], 3);
    expectEqualTraining(trainInterpreted(run, planOf(run, GetParam()), 3), records[file], 3);
  }
};

TEST_P(ExpertAdapters, OfMixtralTrainLikeTheUnsplitModel) { expectEqual("mixtral", "[w1, w2, w3, wq, wo]"); }

/// Keys, values and rotary keys have adapters of the latents' products.
TEST_P(ExpertAdapters, OfDeepSeekV3TrainLikeTheUnsplitModel) {
  expectEqual("deepseek_v3_experts", "[q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj, gate_proj, up_proj, "
                                     "down_proj]");
}

INSTANTIATE_TEST_SUITE_P(
    Plans, ExpertAdapters,
    testing::Values(
        SplitCase{.name = "accumulate2", .microBatches = 2},
        SplitCase{.name = "dp2_zero2", .dp = 2, .microBatches = 2, .zero = 2},
        SplitCase{.name = "tp2_sp", .tp = 2, .sequenceParallel = true},
        SplitCase{.name = "pp2_full", .pp = 2, .microBatches = 4, .recompute = planner::Recompute::Full},
        SplitCase{.name = "ep2", .ep = 2}, SplitCase{.name = "tp2_ep2_whole", .tp = 2, .ep = 2, .splitsExperts = false},
        SplitCase{.name = "dp2_ep2_zero3", .dp = 2, .ep = 2, .microBatches = 2, .zero = 3},
        SplitCase{.name = "dp2_tp2_pp2_ep2_zero1", .dp = 2, .tp = 2, .pp = 2, .ep = 2, .microBatches = 2, .zero = 1}),
    [](const auto &info) { return info.param.name; });

/// The gradient of the bias is experts times the choices of each expert less the choices of all tokens, so that its sum
/// is 0. It does not change the gradient norm. Without the update, later steps choose other experts.
TEST(Experts, TheBiasFollowsTheLoads) {
  RunConfig run = equivalenceRun("glm4_moe"),
            still = equivalenceRun("glm4_moe", {"moe_config.topk_bias_update_rate=0"});
  TrainingRecord moved = trainInterpreted(run, planOf(run, {}), 4),
                 kept = trainInterpreted(still, planOf(still, {}), 4);
  const std::vector<double> &excess = moved.gradients.at(0).at("experts.1.router_bias");
  EXPECT_NEAR(std::accumulate(excess.begin(), excess.end(), 0.0), 0, 1e-9);
  EXPECT_THAT(excess, testing::Contains(testing::Gt(0)));
  EXPECT_EQ(moved.losses.at(0), kept.losses.at(0));
  EXPECT_EQ(moved.norms.at(0), kept.norms.at(0));
  EXPECT_NE(moved.losses.at(3), kept.losses.at(3));
  EXPECT_FALSE(kept.gradients.at(0).contains("experts.1.router_bias"));
}

/// In a type of p significant bits each loss is within 16 u of f32, u = 2^-p. Half of this is the bound of
/// precision_test. The other half covers tokens with almost equal scores that go to another expert.
TEST(Experts, HalfTypesFollowSinglePrecision) {
  for (auto [type, unit] : {std::pair("bfloat16", 0x1p-8), {"float16", 0x1p-11}}) {
    RunConfig run = equivalenceRun("mixtral", {std::string("model.model_config.param_init_type=") + type,
                                               std::string("model.model_config.compute_dtype=") + type,
                                               "optimizer.master_weights=True"});
    RunConfig halfGradients =
        equivalenceRun("mixtral", {std::string("model.model_config.param_init_type=") + type,
                                   std::string("model.model_config.compute_dtype=") + type,
                                   "optimizer.master_weights=True", "parallel.gradient_fp32_sync=False"});
    for (const auto &[config, split] :
         {std::pair(&run, SplitCase{}),
          {&run, SplitCase{.dp = 2, .tp = 2, .ep = 2, .zero = 1}},
          {&halfGradients, SplitCase{.microBatches = 2}},
          {&halfGradients, SplitCase{.dp = 2, .tp = 2, .ep = 2, .microBatches = 2, .zero = 2}}}) {
      TrainingRecord actual = trainCompiled(*config, planOf(*config, split), steps);
      ASSERT_EQ(actual.losses.size(), static_cast<size_t>(steps));
      for (int step = 0; step < steps; ++step)
        EXPECT_NEAR(actual.losses[step], unsplit().losses[step], 16 * unit * unsplit().losses[step])
            << type << " step " << step;
    }
  }
}

/// The dropped tokens and all sums depend only on the plan.
TEST(Experts, ResultsAreDeterministic) {
  RunConfig run = equivalenceRun("mixtral");
  planner::Plan plan = planOf(run, {.tp = 2, .pp = 2, .ep = 2, .microBatches = 2, .zero = 1});
  TrainingRecord first = trainCompiled(run, plan, 3);
  for (int threads : {1, 3}) {
    TrainingRecord again = trainCompiled(run, plan, 3, threads);
    EXPECT_EQ(first.losses, again.losses) << threads << " threads";
    EXPECT_EQ(first.gradients, again.gradients) << threads << " threads";
  }
}

/// Compares kernels with the interpreter; buffers have guards.
TEST(Experts, ACheckedPlanTrainsTheSame) {
  RunConfig run = equivalenceRun("mixtral");
  mlir::MLIRContext context;
  CompileOptions compilation;
  compilation.check = true;
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, {.tp = 2, .ep = 2}), compilation);
  ASSERT_TRUE(compiled);
  rt::RunOptions options;
  options.dataset = equivalenceData(run);
  options.steps = 2;
  rt::RunResult result = rt::runPlan(rt::Program(std::move(compiled->plan)), options);
  for (size_t step = 0; step < 2; ++step)
    EXPECT_NEAR(result.steps.at(step).loss, unsplit().losses[step], 1e-5 * unsplit().losses[step]);
}

TEST(Experts, LossFalls) { EXPECT_LT(unsplit().losses.back(), unsplit().losses.front() - 0.1); }

/// Without drops, an expert has a slot for every token of a sample. Four layers leave chunks for interleaved stages.
/// The sequence is whole where tokens are routed.
TEST(Experts, DroplessTrainsLikeTheUnsplitModel) {
  RunConfig run = equivalenceRun(
      "mixtral", {"moe_config.capacity_factor=2", "moe_config.z_loss_factor=0.01", "model.model_config.num_layers=4"});
  TrainingRecord expected = trainInterpreted(run, planOf(run, {}), 3);
  for (const SplitCase &split :
       {SplitCase{.ep = 4}, SplitCase{.ep = 2, .microBatches = 2, .zero = 2, .recompute = planner::Recompute::Full},
        SplitCase{.dp = 2, .cp = 2, .ep = 2, .zero = 1},
        SplitCase{
            .pp = 2, .ep = 2, .microBatches = 4, .schedule = planner::Schedule::Interleaved, .virtualStages = 2}}) {
    expectEqualTraining(trainInterpreted(run, planOf(run, split), 3), expected, 3);
    expectEqualTraining(trainCompiled(run, planOf(run, split), 3), expected, 3);
  }
}

/// Each of the 8 * 8 tokens of a step has two choices. A sample leaves 5 slots to an expert.
TEST(Experts, LoadsCountEveryChoice) {
  for (const auto &loads : unsplit().loads) {
    EXPECT_EQ(loads.size(), 2u);
    for (const auto &[layer, counts] : loads) {
      ASSERT_EQ(counts.size(), 5u) << layer;
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end() - 1, int64_t(0)), 2 * 8 * 8) << layer;
      EXPECT_GT(counts.back(), 0) << layer;
    }
  }
  RunConfig dropless = equivalenceRun("mixtral", {"moe_config.capacity_factor=2"});
  TrainingRecord record = trainCompiled(dropless, planOf(dropless, {.ep = 2}), 1);
  for (const auto &[layer, counts] : record.loads.at(0))
    EXPECT_EQ(counts.back(), 0) << layer;
}

/// All experts and the router learn, so that no gradient is zero.
TEST(Experts, EveryParameterHasAGradient) {
  for (const auto &[name, values] : unsplit().gradients.front()) {
    double squares = 0;
    for (double value : values)
      squares += value * value;
    EXPECT_GT(squares, 0) << name;
  }
}

/// With one choice per token the weights are not normalized, because the router would otherwise have no gradient.
TEST(Experts, TheRouterLearnsWithOneChoice) {
  RunConfig run = equivalenceRun("mixtral", {"moe_config.num_experts_chosen=1"});
  TrainingRecord record = trainInterpreted(run, planOf(run, {.ep = 2}), 1);
  double squares = 0;
  for (double value : record.gradients.at(0).at("block.0.router_weight"))
    squares += value * value;
  EXPECT_GT(std::sqrt(squares), 1e-6);
}

} // namespace
} // namespace espalier
