// Measures the time of searches, and whether the result is proved (gap 0). Processor time includes all threads. The
// problems are those of planner/README.md.
#include "planner/answer/why_not.h"
#include "planner/search.h"
#include "test/planner/shapes.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <random>

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

Problem interleaved(Problem problem) {
  problem.pins.schedule = Schedule::Interleaved;
  problem.pins.pp = problem.pins.tp = 8;
  return problem;
}

Problem withHosts(Problem problem) {
  problem.machine = withHost(problem.machine);
  return problem;
}

// Returns the problem with one and a half layers per chunk.
Problem unevenChunks(Problem problem) {
  problem.pins.dp = problem.pins.tp = 8;
  problem.pins.pp = 16;
  problem.pins.schedule = Schedule::Interleaved;
  problem.pins.virtualStages = 4;
  problem.pins.microBatchSize = 1;
  problem.pins.recompute = Recompute::Selective;
  return problem;
}

Problem offloaded(Problem problem) {
  problem.pins.schedule = Schedule::OneFOneB;
  problem.pins.pp = problem.pins.tp = 8;
  problem.pins.offloadActivations = true;
  return problem;
}

// Measures only the explanation; the chosen plan is already known. The wishes leave many plans that must be ruled out.
void runWhyNot(benchmark::State &state, const Problem &problem, const Pins &wish, bool all) {
  SearchOptions options;
  options.all = all;
  options.threads = 2;
  SearchResult chosen = search(problem, options);
  WhyNot answer;
  for (auto _ : state)
    answer = whyNot(problem, chosen, wish, options);
  state.counters["gap"] =
      answer.violated.empty() ? std::max(0.0, 1 - answer.lowerBoundSeconds / answer.best.prediction.stepSeconds) : 0;
}

Pins tensorRanks(int tp, int pp) {
  Pins wish;
  wish.tp = tp;
  wish.pp = pp;
  return wish;
}

Pins stages(int pp) {
  Pins wish;
  wish.pp = pp;
  return wish;
}

// Returns pins that do not fit, because every rank would hold the whole model.
Pins everywhere() {
  Pins wish;
  wish.tp = wish.pp = 1;
  wish.zero = 0;
  return wish;
}

Pins fullRecompute() {
  Pins wish;
  wish.recompute = Recompute::Full;
  return wish;
}

// Returns a random 1F1B pipeline with at most as many micro-batches as stages, whose critical path changes stages
// often. Memory may be scarce, links may be slow, and layers may differ.
Problem fewMicroBatches(std::mt19937 &random) {
  auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  int stages = 3 + static_cast<int>(random() % 14), layers = stages + static_cast<int>(random() % (5 * stages));
  int microBatches = 1 + static_cast<int>(random() % stages), replicas = 1 << random() % 3;
  Machine machine = testMachine(1, stages * replicas);
  machine.link.bytesPerSecond = between(1e9, 2e11);
  int64_t vocab = 1000 * (1 + static_cast<int64_t>(random() % 64));
  Problem problem = random() % 4 ? shapeProblem(gpt(layers, 512, 8, vocab), System{}, machine, microBatches * replicas)
                                 : distinctLayers(layers, 512, 8, machine, microBatches * replicas);
  problem.pins.dp = replicas;
  problem.pins.pp = stages;
  problem.pins.microBatchSize = 1;
  problem.pins.schedule = Schedule::OneFOneB;
  if (double least = leastBytes(problem); least > 0)
    problem.machine.memoryBytes = least * between(1, 4);
  return problem;
}

// Counts how many random problems are proved, and the largest gap of the others.
void runRandomFew(benchmark::State &state) {
  std::mt19937 random(static_cast<unsigned>(state.range(1)));
  std::vector<Problem> problems;
  for (int64_t i = 0; i < state.range(0); ++i)
    problems.push_back(fewMicroBatches(random));
  int solved = 0, proved = 0;
  double worst = 0;
  for (auto _ : state)
    for (const Problem &problem : problems) {
      SearchResult result = search(problem);
      if (result.plans.empty())
        continue;
      ++solved;
      proved += result.statistics.optimal;
      if (!result.statistics.optimal)
        worst = std::max(worst, 1 - result.statistics.lowerBoundSeconds / result.plans[0].prediction.stepSeconds);
    }
  state.counters["solved"] = solved;
  state.counters["proved"] = proved;
  state.counters["gap"] = worst;
}

BENCHMARK(runRandomFew)
    ->Args({300, 1})
    ->Args({300, 2})
    ->Args({300, 3})
    ->Args({300, 4})
    ->ArgNames({"problems", "seed"})
    ->Iterations(1)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runSearch, 13b_on_32, shapeProblem(gpt(40, 5120, 40), System{}, testMachine(4, 8), 64), false)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runSearch, 175b_on_1024, large(1536), false)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runSearch, 175b_on_1024_all_offload, withHosts(large(1536)), true)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runSearch, 175b_on_1024_uneven_chunks, unevenChunks(large(1536)), true)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runSearch, 175b_on_1024_offloaded, offloaded(withHosts(large(1536))), true)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runSearch, 175b_on_1024_batch_192, large(192), false)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runSearch, 2_kinds_on_1024_all, firstLayersLighter(61, 3, 7168, 56, testMachine(128, 8), 1024), true)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runSearch, 2_kinds_on_1024_interleaved,
                  interleaved(firstLayersLighter(61, 3, 7168, 56, testMachine(128, 8), 1024)), true)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runWhyNot, 175b_tp_8_pp_16, large(1536), tensorRanks(8, 16), false)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runWhyNot, 175b_pp_16_all, large(1536), stages(16), true)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runWhyNot, 175b_full_recompute_all, large(1536), fullRecompute(), true)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runWhyNot, 175b_everywhere_all, large(1536), everywhere(), true)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runWhyNot, 175b_tp_8_pp_16_all_offload, withHosts(large(1536)), tensorRanks(8, 16), true)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runWhyNot, 175b_pp_16_all_offload, withHosts(large(1536)), stages(16), true)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runWhyNot, 175b_full_recompute_all_offload, withHosts(large(1536)), fullRecompute(), true)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(runWhyNot, 175b_everywhere_all_offload, withHosts(large(1536)), everywhere(), true)
    ->MeasureProcessCPUTime();

} // namespace
} // namespace espalier::planner

BENCHMARK_MAIN();
