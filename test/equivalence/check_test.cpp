// Checked plans: guard bytes do not change results, and an out-of-bounds write is reported with its instruction.
#include "test/equivalence/training.h"

#include "runtime/run/run.h"
#include "runtime/status.h"

#include <gmock/gmock.h>

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

rt::pb::Plan compileChecked(const RunConfig &run, const SplitCase &split) {
  mlir::MLIRContext context;
  CompileOptions options;
  options.check = true;
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, split), options);
  EXPECT_TRUE(compiled);
  return compiled ? std::move(compiled->plan) : rt::pb::Plan();
}

std::vector<double> lossesOf(const RunConfig &run, rt::pb::Plan plan) {
  rt::RunOptions options;
  options.dataset = equivalenceData(run);
  options.steps = 3;
  options.threads = 1;
  std::vector<double> losses;
  for (const rt::StepRecord &step : rt::runPlan(rt::Program(std::move(plan)), options).steps)
    losses.push_back(step.loss);
  return losses;
}

/// Every instruction has a location in the model file, including backward, collectives and optimizer, so that any
/// failure points at the model file. The update from globally reduced sums is an exception, because no model contains
/// it.
/// from globally reduced sums is in no model.
TEST(Locations, EveryInstructionNamesALineOfTheModel) {
  RunConfig run = equivalenceRun("llama");
  rt::pb::Plan plan = compileChecked(run, {.dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 1});
  for (const rt::pb::Subprogram &subprogram : plan.subprograms())
    for (const rt::pb::Instruction &instruction : subprogram.instructions()) {
      ASSERT_LT(instruction.location(), static_cast<uint32_t>(plan.locations_size()));
      const rt::pb::Location &place = plan.locations(instruction.location());
      EXPECT_EQ(place.line() > 0, subprogram.name() != "step.scalars") << subprogram.name() << ": " << place.op();
    }
}

TEST(Check, GuardsDoNotChangeResults) {
  for (const auto &[model, split] :
       {std::pair("llama", SplitCase{.microBatches = 2, .recompute = planner::Recompute::Full}),
        {"gpt2", SplitCase{.dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 1, .sequenceParallel = true}}}) {
    RunConfig run = equivalenceRun(model);
    EXPECT_EQ(lossesOf(run, compileChecked(run, split)), trainCompiled(run, planOf(run, split), 3).losses) << model;
  }
}

/// Removes the dimensions from which the verifier derives the launch's sizes.
void forgetDims(rt::pb::Plan &plan) {
  for (rt::pb::Value &value : *plan.mutable_values())
    value.clear_dims();
  for (rt::pb::Kernel &kernel : *plan.mutable_kernels()) {
    kernel.clear_space();
    kernel.clear_uses();
    for (rt::pb::Operand &operand : *kernel.mutable_operands())
      operand.clear_walk();
  }
}

/// Adds a row or an element to a launch whose kernel declares to stay within its buffers. The write past the end
/// changes a guard.
TEST(Check, NamesTheInstructionThatWritesTooFar) {
  RunConfig run = equivalenceRun("gpt2");
  const rt::pb::Plan good = compileChecked(run, {});
  int tried = 0;
  for (int index = 0; index < good.subprograms_size(); ++index) {
    if (std::string name = good.subprograms(index).name();
        name != "block.none.forward" && name != "block.none.backward" && name != "block.update")
      continue;
    rt::pb::Plan plan = good;
    forgetDims(plan);
    for (rt::pb::Instruction &instruction : *plan.mutable_subprograms(index)->mutable_instructions()) {
      if (!instruction.has_launch())
        continue;
      instruction.mutable_launch()->set_extent(instruction.launch().extent() + 1);
      if (plan.kernels(instruction.launch().kernel()).shape() == "column") // one more block without more rows would
                                                                           // have no rows
        instruction.mutable_launch()->mutable_scalars(1)->set_constant(instruction.launch().scalars(1).constant() + 1);
      for (rt::pb::Operand &operand : *plan.mutable_kernels(instruction.launch().kernel())->mutable_operands()) {
        operand.clear_reach();
        operand.set_bounded(true);
      }
      ++tried;
      try {
        lossesOf(run, plan);
        ADD_FAILURE() << "nobody saw it: " << plan.subprograms(index).name();
      } catch (const rt::RankFailure &error) {
        EXPECT_THAT(error.failure.subprogram, HasSubstr(plan.subprograms(index).name()));
        EXPECT_EQ(error.failure.op, rt::locationText(plan, instruction.location()));
        if (plan.subprograms(index).name() != "block.update") // the update is in no model file
          EXPECT_THAT(error.failure.op, MatchesRegex("(row|flat|column)_[0-9]+ at .*gpt2.yaml:[0-9]+:[0-9]+"));
        EXPECT_THAT(error.failure.message, HasSubstr("it wrote outside of all buffers"));
      }
      break; // only the first launch of each subprogram
    }
  }
  EXPECT_EQ(tried, 3);
}

} // namespace
} // namespace espalier
