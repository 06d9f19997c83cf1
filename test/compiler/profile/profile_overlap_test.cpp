// Compares the overlap of compute and communication that the planner assumes with compiled programs and schedules.
#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"
#include "compiler/profile/profile_model.h"
#include "planner/model/segment.h"
#include "planner/search.h"

#include <gtest/gtest.h>

#include <random>

using namespace espalier;
using namespace mlir;
using planner::Phase;

namespace {

/// Imports a run file without the plan that it pins, for devices that transfer beside compute.
RunConfig importConfig(const std::string &name, const std::string &cluster = "h100_dgx") {
  ImportOptions options;
  options.cluster = cluster;
  ImportedRun imported = importRun(std::string(ESPALIER_SOURCE_DIR) + "/configs/" + name + ".yaml", options);
  EXPECT_TRUE(imported.ok()) << imported.diagnostics.render();
  imported.config.pins = {};
  imported.config.pins.cp = 1; // saves profiling a second way to shard sequences
  return imported.config;
}

/// Returns a plan with one stage over `tp` ranks and micro-batches of 2 samples, for which the terms are read.
planner::Plan tensorPlan(const RunConfig &run, int tp, bool sequenceParallel) {
  planner::Plan plan;
  plan.tp = tp;
  plan.sequenceParallel = sequenceParallel;
  plan.microBatchSize = 2;
  planner::StagePlan stage{0, run.model.layerCount(), {}};
  stage.recompute.assign(stage.layers, planner::Recompute::None);
  stage.recompute[0] = planner::Recompute::Full;
  plan.stages = {stage};
  return plan;
}

class Overlap : public testing::TestWithParam<bool> { // whether tensor ranks shard sequences
protected:
  void SetUp() override {
    problem = profileModel(context, run);
    ASSERT_TRUE(problem);
    plan = tensorPlan(run, 2, GetParam());
  }

  const planner::PatternTerms &termsOf(const std::string &kind) const {
    for (const planner::SegmentKind &segment : problem->kinds)
      if (const planner::PatternTerms *terms = planner::termsOf(segment, plan); terms && segment.name == kind)
        return *terms;
    ADD_FAILURE() << "no terms of " << kind;
    return problem->kinds[0].patterns[0];
  }

  MLIRContext context;
  RunConfig run = importConfig("tiny_gpt");
  std::optional<planner::Problem> problem;
  planner::Plan plan;
};

INSTANTIATE_TEST_SUITE_P(Profile, Overlap, testing::Bool(),
                         [](const auto &info) { return info.param ? "sequence_parallel" : "tensor_parallel"; });

/// Returns the number of matrix products that run beside each collective, in the order of starts.
std::vector<int> productsBeside(const planner::PatternTerms &terms, Phase phase) {
  std::vector<int> products;
  for (const planner::CollectiveTerm &collective : terms.collectives) {
    if (collective.phase != phase)
      continue;
    products.push_back(llvm::count_if(terms.compute, [&](const planner::ComputeTerm &term) {
      bool isOfProgram = term.phase == phase || (phase == Phase::Backward && term.phase == Phase::Weight);
      return isOfProgram && term.kind == planner::ComputeClass::MatMul && term.position >= collective.start &&
             term.position < collective.wait;
    }));
  }
  return products;
}

/// Counts the same in a program of the run plan. Collectives must be waited for in the order of their starts.
std::vector<int> productsBeside(const rt::pb::Plan &plan, const std::string &program) {
  auto found = llvm::find_if(plan.subprograms(), [&](const auto &candidate) { return candidate.name() == program; });
  if (found == plan.subprograms().end()) {
    ADD_FAILURE() << "no program " << program;
    return {};
  }
  std::vector<int> products, inFlight;
  std::vector<uint32_t> ids;
  size_t waits = 0;
  for (const rt::pb::Instruction &instruction : found->instructions()) {
    if (instruction.has_start()) {
      inFlight.push_back(static_cast<int>(products.size()));
      products.push_back(0);
      ids.push_back(instruction.start());
    } else if (instruction.has_wait()) {
      EXPECT_EQ(instruction.wait(), ids.at(waits++)) << program;
      inFlight.erase(inFlight.begin());
    } else if (instruction.has_call() && instruction.call().function() == rt::pb::LibraryCall::MATMUL) {
      for (int collective : inFlight)
        ++products[collective];
    }
  }
  return products;
}

TEST_P(Overlap, EqualsTheWorkBetweenStartAndWaitOfTheProgram) {
  CompileOptions sizesOnly;
  sizesOnly.emitKernels = false;
  plan.microBatches = run.globalBatch / plan.microBatchSize;
  std::optional<Compiled> compiled = compileRun(context, run, plan, sizesOnly);
  ASSERT_TRUE(compiled);
  for (const char *kind : {"embed", "block", "head"}) {
    EXPECT_EQ(productsBeside(termsOf(kind), Phase::Forward),
              productsBeside(compiled->plan, std::string(kind) + ".none.forward"));
    EXPECT_EQ(productsBeside(termsOf(kind), Phase::Backward),
              productsBeside(compiled->plan, std::string(kind) + ".none.backward"));
  }
  // A GPT layer. Backward without sequence parallelism: the all-reduce of the feed-forward part runs beside its two
  // weight gradients, the one of attention beside four. With sequence parallelism, gathered gradients are needed at
  // once. Gathers of inputs run beside products; the last one runs beside a weight gradient and the backward pass of
  // attention.
  std::vector<int> forward(GetParam() ? 4 : 2, 0),
      backward = GetParam() ? std::vector<int>{0, 1, 1, 0, 5, 3} : std::vector<int>{2, 4};
  EXPECT_EQ(productsBeside(termsOf("block"), Phase::Forward), forward);
  EXPECT_EQ(productsBeside(termsOf("block"), Phase::Backward), backward);
}

TEST_P(Overlap, MakesStepsShorterButHidesNoForwardOfTensorRanks) {
  planner::Problem exposed = *problem;
  for (planner::SegmentKind &kind : exposed.kinds)
    for (planner::PatternTerms &terms : kind.patterns)
      for (planner::CollectiveTerm &term : terms.collectives)
        term.wait = term.start;
  auto seconds = [](const planner::Problem &of, const planner::Plan &plan) {
    return planner::pricePlan(of, plan).prediction.stepSeconds;
  };
  auto block = [&](const planner::Problem &of) { return planner::segmentCost(of, of.layers[0].kind, plan).value(); };
  EXPECT_EQ(block(*problem).forward.total(), block(exposed).forward.total());
  EXPECT_LT(block(*problem).backward.total(), block(exposed).backward.total());
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    planner::Plan any = plan;
    any.tp = 1 << random() % 3;
    any.dp = 1 + static_cast<int>(random() % 3);
    any.pp = 1 << random() % 3;
    any.zero = static_cast<int>(random() % 4);
    any.sequenceParallel = GetParam() && any.tp > 1;
    any.microBatches = 4;
    any.schedule = random() % 2 ? planner::Schedule::ZeroBubbleH1 : planner::Schedule::OneFOneB;
    any.stages.clear();
    EXPECT_LE(seconds(*problem, any), seconds(exposed, any) * (1 + 1e-12)) << "plan " << i;
  }
}

// Sums of gradients start after the last backward of their layer, and run beside the backward of preceding layers. The
// planner prices them in the same way.
TEST_P(Overlap, SumsOfGradientsOverlapAsInTheSchedule) {
  plan.dp = 2;
  plan.microBatches = 2;
  CompileOptions sizesOnly;
  sizesOnly.emitKernels = false;
  std::optional<Compiled> compiled = compileRun(context, run, plan, sizesOnly);
  ASSERT_TRUE(compiled);
  bool isBesideBackward = false, reduces = false;
  for (const rt::pb::Block &block : compiled->plan.stages(0).entries(0).blocks())
    for (const rt::pb::Action &action : block.actions()) {
      bool isBackward = action.has_run() && compiled->plan.roles(action.run().role()) == "backward";
      isBesideBackward = isBesideBackward || (reduces && isBackward);
      for (const rt::pb::Flight &flight : action.start().flights())
        reduces = reduces || compiled->plan.transfers(flight.transfer()).kind() == rt::pb::Transfer::ALL_REDUCE;
    }
  ASSERT_TRUE(reduces);
  double sums = 0;
  std::vector<double> symbols = planner::symbolValues(*problem, plan);
  for (const char *kind : {"embed", "block", "head"})
    for (const planner::CollectiveTerm &term : termsOf(kind).collectives) {
      bool isSum = term.phase == Phase::Step && term.kind != planner::CollectiveKind::AllGather;
      EXPECT_EQ(term.besideLastBackward, isBesideBackward && isSum) << term.name;
      if (term.phase == Phase::Step && term.axis == planner::Axis::Dp)
        sums += (kind == std::string("block") ? run.model.layerCount() : 1) *
                planner::collectiveSeconds(term.kind, planner::evaluate(term.bytes, symbols), term.calls,
                                           planner::groupOf(term.axis, plan, problem->machine));
    }
  EXPECT_GT(sums, 0);
  EXPECT_LT(planner::pricePlan(*problem, plan).prediction.time.communication[planner::Axis::Dp],
            sums); // the rest is hidden
}

} // namespace
