// The whole runtime on a hand-built plan: every split trains like the unsplit run.
#include "runtime/train/run.h"

#include "test/runtime/sample_plan.h"

#include <gtest/gtest.h>

namespace espalier::rt {
namespace {

RunResult train(const SampleOptions &options, int64_t steps, int threads = 1) {
  Program program(samplePlan(options));
  RunOptions run;
  run.dataset = sampleData(options.features);
  run.steps = steps;
  run.threads = threads;
  run.keepGradients = run.keepParameters = true;
  return runPlan(program, run);
}

TEST(Run, LossFallsOnOneRank) {
  RunResult result = train({}, 30);
  ASSERT_EQ(result.steps.size(), 30u);
  EXPECT_LT(result.steps.back().loss, 0.9 * result.steps.front().loss);
}

} // namespace
} // namespace espalier::rt
