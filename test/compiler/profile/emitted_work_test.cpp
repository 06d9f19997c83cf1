// Compares the planner's terms for a GPU program with the launches and calls of the compiled plan.
#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"
#include "compiler/profile/profile_model.h"
#include "planner/model/cost.h"
#include "planner/model/segment.h"

#include <gtest/gtest.h>

using namespace espalier;

namespace {

namespace pb = rt::pb;

/// The work of one subprogram.
struct Work {
  double bytes = 0;
  int kernels = 0; ///< without products and attention
};

Work workOf(const pb::Plan &plan, const std::string &name) {
  Work work;
  bool isThere = false;
  for (const pb::Subprogram &subprogram : plan.subprograms()) {
    if (subprogram.name() != name)
      continue;
    isThere = true;
    for (const pb::Instruction &instruction : subprogram.instructions()) {
      if (instruction.has_call()) {
        const pb::LibraryCall &call = instruction.call();
        for (const pb::Buffer &buffer : call.buffers())
          work.bytes += static_cast<double>(buffer.bytes());
        bool isProduct = call.function() == pb::LibraryCall::MATMUL;
        if (call.store() != pb::OVERWRITE)
          work.bytes += static_cast<double>(call.buffers(isProduct ? 2 : call.buffers_size() - 1).bytes());
        work.kernels += !isProduct;
      }
      if (!instruction.has_launch())
        continue;
      const pb::Kernel &kernel = plan.kernels(static_cast<int>(instruction.launch().kernel()));
      work.kernels += !kernel.shape().starts_with("attention");
      for (int i = 0; i < kernel.operands_size(); ++i) {
        bool isOnce = kernel.operands(i).access() <= pb::Operand::WRITE;
        work.bytes += static_cast<double>(instruction.launch().buffers(i).bytes()) * (isOnce ? 1 : 2);
      }
    }
  }
  EXPECT_TRUE(isThere) << name;
  return work;
}

class EmittedWorkOf : public testing::TestWithParam<const char *> {};

INSTANTIATE_TEST_SUITE_P(Models, EmittedWorkOf, testing::Values("gpt2_124m", "llama2_7b"),
                         [](const auto &info) { return std::string(info.param); });

/// The terms of a layer, forward and backward, have one entry per kernel, and the same bytes, for any micro-batch size.
/// Column sums write partial sums per block of rows. The terms assume the number of blocks of micro-batches of two
/// samples, hence the bounds. One sample has half as many blocks if a kernel has fewer blocks than its maximum
/// (leastReducedRows of the policy).
TEST_P(EmittedWorkOf, LayersEqualsTheCompiledPlan) {
  ImportedRun imported = importRun(std::string(ESPALIER_SOURCE_DIR) + "/configs/" + GetParam() + ".yaml");
  ASSERT_TRUE(imported.ok()) << imported.diagnostics.render();
  const RunConfig &run = imported.config;
  mlir::MLIRContext context;
  std::optional<planner::Problem> problem = profileModel(context, run, "cuda");
  ASSERT_TRUE(problem);
  for (int tp : {1, 2})
    for (int64_t samples : {1, 3}) {
      planner::Plan plan;
      plan.tp = tp;
      plan.microBatchSize = samples;
      plan.vocabParallel = run.pins.vocabParallel.value_or(true);
      int layers = run.model.layerCount();
      plan.stages = {{0, layers, std::vector<planner::Recompute>(layers, planner::Recompute::None)}};
      CompileOptions options;
      options.target = "cuda";
      options.emitKernels = false;
      std::optional<Compiled> compiled = compileRun(context, run, plan, options);
      ASSERT_TRUE(compiled);
      auto block = std::ranges::find(problem->kinds, "block", &planner::SegmentKind::name);
      ASSERT_NE(block, problem->kinds.end());
      const planner::PatternTerms *terms = planner::termsOf(*block, plan);
      ASSERT_TRUE(terms);
      std::vector<double> symbols = planner::symbolValues(*problem, plan);
      for (bool isForward : {true, false}) {
        Work priced;
        for (const planner::ComputeTerm &term : terms->compute) {
          bool isOfPhase = isForward ? term.phase == planner::Phase::Forward
                                     : term.phase == planner::Phase::Backward || term.phase == planner::Phase::Weight;
          if (!isOfPhase)
            continue;
          priced.bytes += planner::evaluate(term.bytes, symbols);
          priced.kernels += term.kind == planner::ComputeClass::Memory;
        }
        Work emitted = workOf(compiled->plan, isForward ? "block.none.forward" : "block.none.backward");
        EXPECT_EQ(priced.kernels, emitted.kernels) << tp << " tensor ranks, forward " << isForward;
        EXPECT_NEAR(priced.bytes, emitted.bytes, (samples == 1 ? 0.03 : 0.015) * emitted.bytes)
            << tp << " tensor ranks, " << samples << " samples, forward " << isForward;
      }
    }
}

} // namespace
