// Compares the planner's terms for a model with the partitioned model and with compiled programs.
#include "compiler/attributes/apply_plan.h"
#include "compiler/choose/choose_plan.h"
#include "compiler/choose/fit_memory.h"
#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"
#include "compiler/profile/profile_model.h"
#include "dialects/dist/dialect.h"
#include "dialects/exec/dialect.h"
#include "planner/answer/explain.h"
#include "planner/model/schedule.h"
#include "planner/model/segment.h"
#include "planner/search.h"
#include "test/compiler/profile/sample_plans.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>

using namespace espalier;
using namespace mlir;

namespace {

std::vector<std::string> smallExperts(const std::string &experts, const std::string &more = "run_mode=train") {
  return {"cluster=cpu_local",
          experts,
          more,
          sizes + "hidden_size=64",
          sizes + "num_layers=4",
          sizes + "num_heads=4",
          sizes + "n_kv_heads=4",
          sizes + "seq_length=64",
          sizes + "vocab_size=256",
          sizes + "intermediate_size=128"};
}

const std::string dropless = "moe_config={expert_num: 16, num_experts_chosen: 2, capacity_factor: 0}";

/// Fused products count, and slots that no token can fill do not. Forward and both gradients take six operations per
/// weight of a product and token. Attention under the causal mask takes 2 s h in forward and 2.5 times as many in
/// backward.
TEST(ProfileModel, UsefulOperationsEqualTheModels) {
  for (const char *type : {"float32", "float16"}) {
    RunConfig run = importConfig("gpt2_124m", {sizes + "param_init_type=" + type, sizes + "compute_dtype=" + type});
    MLIRContext context;
    std::optional<planner::Problem> problem = profileModel(context, run);
    ASSERT_TRUE(problem);
    constexpr double tokens = 1024, hidden = 768, weights = 12 * 12 * hidden * hidden + 50304 * hidden;
    double attention = problem->modelFlops - 6 * weights * tokens;
    constexpr double forward = 12 * 2 * tokens * tokens * hidden; // of the causal half of the scores
    EXPECT_GE(attention, 3 * forward) << type;
    EXPECT_LE(attention, 3.5 * forward * 1.01) << type;
  }
  double flops[2];
  for (int even : {0, 1}) {
    RunConfig run = importConfig(
        "mixtral_8x7b", smallExperts(even ? "moe_config.capacity_factor=1.0" : "moe_config.capacity_factor=2.0"));
    MLIRContext context;
    std::optional<planner::Problem> problem = profileModel(context, run);
    ASSERT_TRUE(problem);
    flops[even] = problem->modelFlops;
  }
  EXPECT_NEAR(flops[0], flops[1], 1e-9 * flops[1]);
}

/// The terms depend on the number of tensor ranks, but not on devices, pins or software.
TEST(ProfileModel, TermsAreReadOnceForAllVariantsOfAFile) {
  RunConfig run = importConfig("tiny_gpt", {}),
            other = importConfig("tiny_gpt", {"parallel.parallel_mode=2", "planner.global_batch=64"}, "cpu_local:2x8");
  run.pins.cp.reset(); // the run file pins cp
  MLIRContext context;
  std::optional<planner::Problem> first = profileModel(context, run), second = profileModel(context, other);
  ASSERT_TRUE(first && second);
  std::optional<planner::Problem> reused = withRun(*first, run, other, "cpu");
  ASSERT_TRUE(reused);
  EXPECT_EQ(reused->machine.hosts, 2);
  EXPECT_EQ(reused->globalBatch, second->globalBatch);
  EXPECT_EQ(reused->pins.dp, second->pins.dp);
  ASSERT_EQ(reused->kinds.size(), second->kinds.size());
  for (size_t kind = 0; kind < second->kinds.size(); ++kind)
    EXPECT_EQ(reused->kinds[kind].patterns, second->kinds[kind].patterns);
  other.pins.vocabParallel = false;
  EXPECT_FALSE(withRun(*first, run, other, "cpu"));
}

/// Bytes of unsharded buffers by collective and axis. The flag is true for collectives of dp that also span ep.
using Traffic = std::map<std::tuple<planner::CollectiveKind, planner::Axis, bool>, double>;

/// Counts the collectives in a function of the partitioned model, op by op, multiplied by `sign`.
void count(ModuleOp module, const std::string &function, double sign, Traffic &traffic) {
  auto found = module.lookupSymbol<func::FuncOp>(function);
  ASSERT_TRUE(found) << function;
  found.walk([&](Operation *op) {
    if (!isa<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp, dist::AllToAllOp>(op))
      return;
    bool isGather = isa<dist::AllGatherOp>(op);
    auto kind = isGather                     ? planner::CollectiveKind::AllGather
                : isa<dist::AllReduceOp>(op) ? planner::CollectiveKind::AllReduce
                : isa<dist::AllToAllOp>(op)  ? planner::CollectiveKind::AllToAll
                                             : planner::CollectiveKind::ReduceScatter;
    auto type = cast<RankedTensorType>(isGather ? op->getResult(0).getType() : op->getOperand(0).getType());
    SmallVector<StringRef> axes(op->getAttrOfType<ArrayAttr>("axes").getAsValueRange<StringAttr>());
    bool isExchange = isa<dist::AllToAllOp>(op), overExperts = !isExchange && llvm::is_contained(axes, "ep");
    bool overContext = llvm::is_contained(axes, "cp");
    double bytes = sign * static_cast<double>(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
    if (isExchange)
      traffic[{kind, overContext ? planner::Axis::Cp : planner::Axis::Ep, false}] += bytes;
    else if (overExperts || llvm::is_contained(axes, "dp"))
      traffic[{kind, planner::Axis::Dp, overExperts}] += bytes;
    else if (overContext)
      traffic[{kind, planner::Axis::Cp, false}] += bytes;
    if (llvm::is_contained(axes, "tp") && !overContext) // one over cp and tp is priced over cp
      traffic[{kind, planner::Axis::Tp, false}] += bytes;
  });
}

/// Counts collectives per bucket, without padding. A sum of gradients is one collective over all ranks that hold the
/// same parameters, dp and cp. Shards move once per step, or in every micro-batch if ZeRO gathers them only for that
/// micro-batch.
void countShares(exec::SegmentOp segment, const planner::Plan &plan, bool isLayer, Traffic &forward, Traffic &backward,
                 Traffic &step) {
  const int zero = plan.zero;
  auto add = [&](Traffic &traffic, planner::CollectiveKind kind, ArrayRef<StringAttr> axes, double bytes) {
    auto has = [&](StringRef name) { return llvm::any_of(axes, [&](StringAttr axis) { return axis == name; }); };
    if (has("dp") || has("cp") || has("ep"))
      traffic[{kind, planner::Axis::Dp, has("ep") && plan.ep > 1}] += bytes;
    if (has("tp"))
      traffic[{kind, planner::Axis::Tp, false}] += bytes;
  };
  for (exec::BucketOp bucket : segment.buckets()) {
    if (bucket.getTiedHere())
      continue;
    double elements = 0;
    for (exec::ParameterOp parameter : bucket.parameters())
      elements += static_cast<double>(parameter.localElements());
    SmallVector<StringAttr> sums;
    for (StringAttr axis : bucket.getPartial())
      if (!llvm::is_contained(bucket.getShare(), axis))
        sums.push_back(axis);
    add(step, planner::CollectiveKind::AllReduce, sums, 4 * elements);
    add(zero >= 2 ? backward : step, planner::CollectiveKind::ReduceScatter, bucket.getShare(), 4 * elements);
    bool isGatheredOften = zero == 3 && isLayer;
    for (Traffic *traffic : isGatheredOften ? std::vector{&forward, &backward} : std::vector{&step})
      add(*traffic, planner::CollectiveKind::AllGather, bucket.getShare(),
          static_cast<double>(bucket.storedWidth()) * elements);
  }
}

void expectSame(const Traffic &counted, const Traffic &predicted, const std::string &where) {
  Traffic all = counted;
  all.insert(predicted.begin(), predicted.end());
  for (const auto &[key, unused] : all) {
    double want = counted.count(key) ? counted.at(key) : 0, got = predicted.count(key) ? predicted.at(key) : 0;
    EXPECT_NEAR(got, want, 1e-9 * want) << where << ", collective " << static_cast<int>(std::get<0>(key))
                                        << " over axis " << static_cast<int>(std::get<1>(key));
  }
}

struct Profiled {
  std::string name, config;
  std::vector<std::string> sets;
};

class CollectiveBytes : public testing::TestWithParam<Profiled> {};

INSTANTIATE_TEST_SUITE_P(
    ProfileModel, CollectiveBytes,
    testing::Values(Profiled{"gpt", "tiny_gpt", {}},
                    Profiled{"sliced_inputs", "tiny_gpt", {"recompute_config.recompute_slice_activation=True"}},
                    Profiled{"clip", "tiny_gpt", {"optimizer.qk_clip_threshold=100"}},
                    Profiled{"clip_experts", "mixtral_8x7b",
                             smallExperts("moe_config.expert_num=4", "optimizer.qk_clip_threshold=100")},
                    Profiled{"experts", "mixtral_8x7b", smallExperts("moe_config.expert_num=4")},
                    Profiled{"whole_experts", "mixtral_8x7b",
                             smallExperts("moe_config.expert_num=8", "planner.pin.expert_tensor_parallel=False")},
                    Profiled{"context_experts", "mixtral_8x7b", smallExperts(dropless)},
                    Profiled{"folded_experts", "mixtral_8x7b",
                             smallExperts(dropless, "planner.pin.experts_over_context=True")},
                    Profiled{"folded_whole_experts", "mixtral_8x7b",
                             smallExperts(dropless, "planner.pin={experts_over_context: True, expert_tensor_parallel: "
                                                    "False}")}),
    [](const auto &info) { return info.param.name; });

/// Returns the largest workspaces of the programs of one stage: of a micro-batch, and of the step. Models with experts
/// have no arena yet.
std::pair<double, double> compiledWorkspaces(MLIRContext &context, const RunConfig &run, const planner::Plan &plan) {
  OwningOpRef<ModuleOp> model = partitionRun(context, run, plan);
  PassManager passes(&context);
  addCodegenPasses(passes);
  EXPECT_TRUE(model && succeeded(passes.run(*model)));
  int64_t microBatch = 0, step = 0;
  for (auto program : model->getOps<exec::ProgramOp>()) {
    StringRef name = program.getSymName();
    int64_t &most = name.ends_with(".update") || name.ends_with(".norm") ? step : microBatch;
    most = std::max<int64_t>(most, program.getWorkspaceBytes().value_or(0));
  }
  return {microBatch, step};
}

/// Experts that are sharded over tp or not, with long sequences, and with sequences so short that parameters are large
/// in comparison.
class ExpertWorkspaces : public testing::TestWithParam<std::tuple<bool, bool>> {};

INSTANTIATE_TEST_SUITE_P(ProfileModel, ExpertWorkspaces, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param) ? "split_experts" : "whole_experts") +
                                  (std::get<1>(info.param) ? "_of_short_sequences" : "");
                         });

// Experts are profiled on two ranks, with dp 1 and dp 2.
TEST_P(ExpertWorkspaces, EqualTheProgramsForAnyExpertRanks) {
  auto [isSplit, isShort] = GetParam();
  std::vector<std::string> sets = smallExperts(
      "moe_config.expert_num=16", std::string("planner.pin.expert_tensor_parallel=") + (isSplit ? "True" : "False"));
  if (isShort)
    sets.insert(sets.end(), {sizes + "seq_length=8", sizes + "intermediate_size=1024"});
  RunConfig run = importConfig("mixtral_8x7b", sets);
  MLIRContext context;
  std::optional<planner::Problem> problem = profileModel(context, run);
  ASSERT_TRUE(problem);
  double worst = 0;
  int plans = 0;
  for (int ep : {1, 2, 4, 8})
    for (int dp : {1, 3})
      for (int tp : {1, 2})
        for (int zero : {0, 1})
          for (int64_t samples : {1, 5}) {
            planner::Plan plan;
            plan.ep = ep, plan.dp = dp, plan.tp = tp, plan.zero = zero;
            plan.sequenceParallel = tp > 1 && dp > 1;
            plan.splitsExperts = isSplit;
            plan.microBatchSize = samples;
            plan.stages = {{0, 4, std::vector<planner::Recompute>(4, planner::Recompute::Full)}};
            double predicted = planner::pricePlan(*problem, plan).prediction.memory[0].workspace;
            auto [microBatch, step] = compiledWorkspaces(context, run, plan);
            auto compiled = static_cast<double>(microBatch);
            EXPECT_NEAR(predicted, compiled, 0.02 * compiled) << planner::describePlan(plan) << ", zero " << zero;
            EXPECT_EQ(step, 0) << "buckets are updated in place";
            worst = std::max(worst, std::abs(predicted / compiled - 1));
            ++plans;
          }
  std::printf("worst error of %d plans %.3f %%\n", plans, 100 * worst);
}

TEST_P(CollectiveBytes, EqualThePartitionedModel) {
  RunConfig run = importConfig(GetParam().config, GetParam().sets);
  run.pins.cp.reset(); // the run file pins cp
  MLIRContext context;
  std::optional<planner::Problem> problem = profileModel(context, run);
  ASSERT_TRUE(problem);
  PlanSampler sampler(run, 3, /*interleaves=*/false, /*zeros=*/{0, 1, 2, 3});
  size_t seen = 0, exchanges = 0, clips = 0;
  for (int i = 0; i < 24; ++i) {
    planner::Plan plan = sampler.sample();
    for (planner::StagePlan &stage : plan.stages) // uses each policy, so that all functions exist
      for (size_t layer = 0; layer < stage.recompute.size(); ++layer)
        stage.recompute[layer] = static_cast<planner::Recompute>((stage.firstLayer + layer) % 3);
    OwningOpRef<ModuleOp> model = partitionRun(context, run, plan);
    ASSERT_TRUE(model);
    std::vector<double> symbols = planner::symbolValues(*problem, plan);
    for (const planner::SegmentKind &kind : problem->kinds) {
      const planner::PatternTerms *terms = planner::termsOf(kind, plan);
      ASSERT_TRUE(terms);
      auto predicted = [&](planner::Phase phase, auto isWanted) {
        Traffic traffic;
        for (const planner::CollectiveTerm &term : terms->collectives) {
          int replicas = plan.dp * (term.withoutContext ? 1 : plan.cp);
          bool hasAxis = term.axis == planner::Axis::Dp   ? replicas > 1 || (term.overExperts && plan.ep > 1)
                         : term.axis == planner::Axis::Ep ? plan.ep > 1
                         : term.axis == planner::Axis::Cp ? plan.cp > 1
                                                          : plan.tp > 1;
          if (term.phase == phase && hasAxis && isWanted(term))
            traffic[{term.kind, term.axis, term.overExperts && plan.ep > 1}] += planner::evaluate(term.bytes, symbols);
        }
        seen += traffic.size();
        return traffic;
      };
      auto any = [](const planner::CollectiveTerm &) { return true; };
      std::string where = kind.name + " of " + planner::describePlan(plan);
      Traffic forward, backward, step;
      count(*model, kind.name + ".none.forward", 1, forward);
      count(*model, kind.name + ".none.backward", 1, backward);
      countShares(exec::findSegment(*model, kind.name), plan,
                  /*isLayer=*/kind.name == "block", forward, backward, step);
      Traffic maxima;
      count(*model, kind.name + ".update", 1, maxima);
      clips += maxima.size();
      for (const auto &[key, bytes] : maxima) // the term of all replicas includes the context ranks
        step[{std::get<0>(key), planner::Axis::Dp, std::get<2>(key)}] += bytes;
      exchanges += forward.count({planner::CollectiveKind::AllToAll, planner::Axis::Ep, false});
      expectSame(forward, predicted(planner::Phase::Forward, any), "forward of " + where);
      expectSame(backward, predicted(planner::Phase::Backward, any), "backward of " + where);
      expectSame(step, predicted(planner::Phase::Step, any), "step of " + where);
      if (kind.name != "block")
        continue;
      Traffic again;
      count(*model, "block.full.backward", 1, again);
      count(*model, "block.none.backward", -1, again);
      expectSame(again, predicted(planner::Phase::Recompute, [](const auto &term) { return term.recomputedFull; }),
                 "recompute of " + where);
    }
  }
  EXPECT_GT(seen, 50u);
  EXPECT_EQ(exchanges > 0, run.model.hasExperts());
  EXPECT_EQ(clips > 0, run.optimizer.qkClipThreshold > 0);
}

} // namespace
