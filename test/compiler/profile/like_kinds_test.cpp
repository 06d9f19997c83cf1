// Kinds of layers that differ only in the window of their attention: terms read from the programs of one of them equal
// those of a build of each.
#include "compiler/profile/like_kinds.h"

#include "compiler/profile/profile_model.h"
#include "planner/model/segment.h"
#include "test/compiler/profile/sample_plans.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace espalier;

namespace {

/// Returns a small Gemma 2 whose kinds `block`, with a window of 16 tokens, and `global` alternate.
RunConfig twoWindows() {
  const std::string sizes = "model.model_config.";
  return importConfig(
      "llama2_7b", {"model.arch.type=Gemma2ForCausalLM", "model.model_config.type=Gemma2Config", "cluster=cpu_local",
                    "parallel.parallel_mode=2", sizes + "hidden_size=64", sizes + "num_layers=4", sizes + "num_heads=4",
                    sizes + "n_kv_heads=2", sizes + "head_dim=16", sizes + "seq_length=64", sizes + "vocab_size=256",
                    sizes + "intermediate_size=128", sizes + "sliding_window=16", sizes + "multiple_of=null",
                    sizes + "softmax_compute_type=float32", sizes + "rotary_dtype=float32"});
}

const planner::SegmentKind &kindOf(const planner::Problem &problem, const std::string &name) {
  return *std::ranges::find(problem.kinds, name, &planner::SegmentKind::name);
}

SegmentDescription &segmentOf(RunConfig &run, const std::string &kind) {
  return *std::ranges::find(run.model.segments, kind, &SegmentDescription::kind);
}

TEST(LikeKinds, OneOfThemIsBuilt) {
  RunConfig run = twoWindows();
  ASSERT_EQ(run.model.segments.size(), 4U);
  LikeKinds like(run);
  EXPECT_EQ(like.built().model.segments.size(), 3U);
  EXPECT_EQ(like.built().model.layerCount(), 4);
  EXPECT_EQ(like.builtFor("global"), "block");
  EXPECT_EQ(like.builtFor("head"), "head");

  RunConfig other = run;
  segmentOf(other, "global").parameters.front().decay = !segmentOf(other, "global").parameters.front().decay;
  EXPECT_EQ(LikeKinds(other).builtFor("global"), "global");
  other = run;
  for (OpDescription &op : segmentOf(other, "global").ops)
    if (op.kind == "rms_norm")
      op.numbers["epsilon"] *= 2;
  EXPECT_EQ(LikeKinds(other).builtFor("global"), "global");
  other = run;
  other.optimizer.rateGroups.push_back({{"global.attn_q_weight"}, {}});
  EXPECT_EQ(LikeKinds(other).builtFor("global"), "global");
}

/// The kind that comes first is built. Both orders give the same terms for both kinds.
TEST(LikeKinds, TermsEqualThoseOfABuild) {
  for (const char *target : {"cpu", "cuda"}) {
    RunConfig run = twoWindows(), swapped = run;
    std::swap(segmentOf(swapped, "block"), segmentOf(swapped, "global"));
    ASSERT_EQ(LikeKinds(swapped).builtFor("block"), "global");
    mlir::MLIRContext context;
    std::optional<planner::Problem> problem = profileModel(context, run, target),
                                    other = profileModel(context, swapped, target);
    ASSERT_TRUE(problem && other);
    EXPECT_EQ(problem->modelFlops, other->modelFlops);
    EXPECT_FALSE(kindOf(*problem, "block").patterns == kindOf(*problem, "global").patterns);
    for (const char *name : {"embed", "block", "global", "head"}) {
      const planner::SegmentKind &kind = kindOf(*problem, name), &same = kindOf(*other, name);
      ASSERT_EQ(kind.patterns.size(), same.patterns.size());
      for (size_t i = 0; i < kind.patterns.size(); ++i) {
        const planner::PatternTerms &a = kind.patterns[i], &b = same.patterns[i];
        ASSERT_EQ(a.compute.size(), b.compute.size());
        for (size_t term = 0; term < a.compute.size(); ++term)
          EXPECT_TRUE(a.compute[term] == b.compute[term]) << name << " on " << target << ": " << a.compute[term].name;
        EXPECT_TRUE(a == b) << name << " on " << target;
      }
    }
  }
}

/// The cost of a like kind evaluates its attention only, and equals the cost without this.
TEST(LikeKinds, CostEvaluatesAttentionOnly) {
  RunConfig run = twoWindows();
  mlir::MLIRContext context;
  std::optional<planner::Problem> problem = profileModel(context, run);
  ASSERT_TRUE(problem);
  auto number = [&](const char *name) { return static_cast<int>(&kindOf(*problem, name) - problem->kinds.data()); };
  int block = number("block"), global = number("global");
  ASSERT_EQ(problem->kinds[global].like, block);
  planner::Plan plan;
  plan.tp = 2;
  plan.dp = 2;
  planner::SegmentCosts costs(*problem, plan);
  ASSERT_TRUE(costs.of(block));
  int64_t first = costs.work();
  planner::SegmentCost cost = costs.of(global).value();
  int64_t second = costs.work() - first;
  EXPECT_GT(second, 0);
  EXPECT_LT(5 * second, first);
  problem->kinds[global].like = -1;
  planner::SegmentCost whole = planner::segmentCost(*problem, global, plan).value();
  EXPECT_EQ(cost.forward.total(), whole.forward.total());
  EXPECT_EQ(cost.backward.total(), whole.backward.total());
  EXPECT_EQ(cost.recompute[planner::Recompute::Full].total(), whole.recompute[planner::Recompute::Full].total());
  EXPECT_EQ(cost.step.total(), whole.step.total());
  EXPECT_EQ(cost.parameterBytes, whole.parameterBytes);
  EXPECT_EQ(cost.savedBytes[0], whole.savedBytes[0]);
  EXPECT_EQ(cost.workspaceBytes[0], whole.workspaceBytes[0]);
  EXPECT_NE(cost.forward.total(), costs.of(block)->forward.total());
}

} // namespace
