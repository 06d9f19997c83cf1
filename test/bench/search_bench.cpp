// How long a search takes, and whether its answer is proved (gap 0). Problems are those of planner/README.md.
#include "planner/explain.h"
#include "planner/search.h"
#include "test/planner/shapes.h"

#include <benchmark/benchmark.h>

namespace espalier::planner {
namespace {

void runSearch(benchmark::State &state, const Problem &problem, bool all) {
  SearchOptions options;
  options.all = all;
  options.threads = 2;
  SearchResult result;
  for (auto _ : state)
    result = search(problem, options);
  state.counters["space"] = result.statistics.space;
  double value = result.plans.front().prediction.stepSeconds;
  state.counters["gap"] = result.statistics.optimal ? 0 : 1 - result.statistics.lowerBoundSeconds / value;
}

Problem large(int64_t globalBatch) {
  return shapeProblem(gpt(96, 12288, 96), System{}, testMachine(128, 8), globalBatch);
}

Problem withHosts(Problem problem) {
  problem.machine = withHost(problem.machine);
  return problem;
}

BENCHMARK_CAPTURE(runSearch, 13b_on_32, shapeProblem(gpt(40, 5120, 40), System{}, testMachine(4, 8), 64), false);
BENCHMARK_CAPTURE(runSearch, 13b_on_32_all, shapeProblem(gpt(40, 5120, 40), System{}, testMachine(4, 8), 64), true);
BENCHMARK_CAPTURE(runSearch, 175b_on_1024, large(1536), false);
BENCHMARK_CAPTURE(runSearch, 175b_on_1024_all, large(1536), true);
BENCHMARK_CAPTURE(runSearch, 175b_on_1024_all_offload, withHosts(large(1536)), true);
BENCHMARK_CAPTURE(runSearch, 175b_on_1024_batch_192, large(192), false);
BENCHMARK_CAPTURE(runSearch, 1024_kinds_on_16384, distinctLayers(1024, 12288, 96, testMachine(2048, 8), 16384), false);

} // namespace
} // namespace espalier::planner

BENCHMARK_MAIN();
