// A plan gives bitwise equal results with ranks as threads and as processes.
#include "test/equivalence/splits.h"

#include "runtime/run/run.h"
#include "test/host_options.h"

#include <bit>
#include <csignal>
#include <gtest/gtest.h>

namespace espalier {
namespace {

constexpr int64_t steps = 6;

/// Compiles a plan that this process can run after the compiler and its threads have ended.
std::unique_ptr<rt::Program> programOf(const RunConfig &run, const SplitCase &split) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, split), hostOptions());
  return compiled ? std::make_unique<rt::Program>(std::move(compiled->plan), 1) : nullptr;
}

/// Returns the bits of everything that a run reports except times.
std::vector<uint64_t> bitsOf(const rt::RunResult &result) {
  std::vector<uint64_t> bits;
  for (const rt::StepRecord &step : result.steps)
    for (double value : {double(step.step), step.loss, step.gradNorm, step.learningRate, step.lossScale, step.labels,
                         double(step.isApplied)})
      bits.push_back(std::bit_cast<uint64_t>(value));
  for (const rt::EvaluationRecord &evaluation : result.evaluations)
    for (double value : {double(evaluation.step), evaluation.loss, evaluation.tokens})
      bits.push_back(std::bit_cast<uint64_t>(value));
  return bits;
}

class Processes : public testing::TestWithParam<std::tuple<Model, SplitCase>> {};

TEST_P(Processes, EqualThreadsBitwise) {
  const auto &[model, split] = GetParam();
  RunConfig run = equivalenceRun(model.file, model.sets);
  std::unique_ptr<rt::Program> program = programOf(run, split);
  ASSERT_TRUE(program);
  rt::RunOptions options;
  options.dataset = options.heldOut = equivalenceData(run);
  options.steps = steps;
  options.threads = 1;
  options.evalEvery = 2;
  options.evalBatches = 1;
  std::vector<uint64_t> threads = bitsOf(rt::runPlan(*program, options));
  ASSERT_EQ(threads.size(), steps * 7u + steps / 2 * 3);
  options.comm = rt::Comm::shm;
  EXPECT_EQ(bitsOf(rt::runPlan(*program, options)), threads);
}

std::string nameOf(const testing::TestParamInfo<Processes::ParamType> &info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
}

/// The first model ties its embedding to its head.
INSTANTIATE_TEST_SUITE_P(
    Plans, Processes,
    testing::Combine(testing::ValuesIn(models()),
                     testing::Values(SplitCase{.name = "dp2", .dp = 2, .microBatches = 2},
                                     SplitCase{.name = "dp4zero1", .dp = 4, .zero = 1},
                                     SplitCase{.name = "dp2zero3", .dp = 2, .microBatches = 2, .zero = 3},
                                     SplitCase{.name = "tp2sp", .tp = 2, .sequenceParallel = true},
                                     SplitCase{.name = "pp2", .pp = 2, .microBatches = 4},
                                     SplitCase{.name = "cp2", .cp = 2},
                                     SplitCase{.name = "all",
                                               .dp = 2,
                                               .tp = 2,
                                               .pp = 2,
                                               .microBatches = 2,
                                               .zero = 1,
                                               .sequenceParallel = true,
                                               .recompute = planner::Recompute::Full})),
    nameOf);

INSTANTIATE_TEST_SUITE_P(ChunkPlans, Processes,
                         testing::Combine(testing::Values(deepModels().front()),
                                          testing::Values(chunkSplits().front())),
                         nameOf);

/// All-to-alls between processes.
INSTANTIATE_TEST_SUITE_P(
    ExpertPlans, Processes,
    testing::Combine(
        testing::Values(Model{"mixtral", "mixtral", {}}),
        testing::Values(SplitCase{.name = "ep4", .ep = 4},
                        SplitCase{.name = "all", .dp = 2, .tp = 2, .ep = 2, .zero = 1, .sequenceParallel = true})),
    nameOf);

/// Each rank's tensors stay in its process.
TEST(ProcessesOnly, GatherNoTensors) {
  RunConfig run = equivalenceRun("gpt2");
  std::unique_ptr<rt::Program> program = programOf(run, {.name = "dp2", .dp = 2});
  rt::RunOptions options;
  options.dataset = equivalenceData(run);
  options.comm = rt::Comm::shm;
  options.keepGradients = true;
  EXPECT_THROW(rt::runPlan(*program, options), rt::PlanError);
}

/// Tests a rank that throws and a rank that a signal kills. The rank itself reports the location, and the watcher
/// forwards it.
TEST(ProcessesOnly, AFailureNamesItsLocation) {
  RunConfig run = equivalenceRun("gpt2");
  std::unique_ptr<rt::Program> program = programOf(run, {.name = "tp2", .tp = 2});
  rt::RunOptions options;
  options.dataset = equivalenceData(run);
  options.steps = 3;
  options.threads = 1;
  options.comm = rt::Comm::shm;
  std::signal(SIGSEGV, SIG_DFL); // sanitizers must not report the intended crash
  for (bool crashes : {false, true}) {
    options.fault = rt::Fault{
        .rank = 1, .step = 1, .action = 2, .instruction = 0, .kind = crashes ? rt::Fault::Crash : rt::Fault::Exception};
    try {
      rt::runPlan(*program, options);
      FAIL() << "nothing failed";
    } catch (const rt::RankFailure &error) {
      EXPECT_EQ(error.failure.rank, 1);
      EXPECT_EQ(error.failure.message,
                crashes ? "its process was killed by signal 11 (Segmentation fault)" : "injected fault");
      EXPECT_EQ(error.failure.step, 1);
      EXPECT_EQ(error.waiting.size(), 1u);
    }
  }
}

} // namespace
} // namespace espalier
