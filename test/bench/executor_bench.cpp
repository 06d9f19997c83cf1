// Measures the executor's overhead per instruction, in a step with a thousand calls of trivial kernels. The lower limit
// is a call of such a kernel through a pointer.
#include "runtime/executor.h"

#include "runtime/comm/local.h"
#include "runtime/device/cpu/backend.h"
#include "test/runtime/sample_plan.h"
#include "test/runtime/sample_ranks.h"

#include <benchmark/benchmark.h>

namespace espalier::rt {
namespace {

/// Returns options for one sample of one feature, with hundreds of layers.
SampleOptions manyCalls() {
  SampleOptions options;
  options.layers = 300;
  options.samples = options.features = options.microBatches = 1;
  return options;
}

/// Returns the number of instructions that an entry runs.
int64_t instructionsOf(const RankProgram &program, uint32_t entry) {
  int64_t sum = 0;
  for (uint32_t block = 0; block < program.entries[entry].count; ++block)
    for (uint32_t i = 0; i < program.blocks[program.entries[entry].first + block].actions.count; ++i) {
      const PreparedAction &action =
          program.actions[program.blocks[program.entries[entry].first + block].actions.first + i];
      for (uint32_t call = 0; action.kind == PreparedAction::Run && call < action.calls.count; ++call)
        if (uint32_t subprogram = program.calls[action.calls.first + call].programs[action.role])
          sum +=
              program.subprograms[subprogram - 1].count * program.blocks[program.entries[entry].first + block].rounds;
    }
  return sum;
}

void BM_Instruction(benchmark::State &state) {
  Program program(samplePlan(manyCalls()));
  LocalWorld world(1);
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  ThreadPool pool(1, 0);
  std::unique_ptr<Device> device = program.backend().open(program.plan().stages(0), {*communicator, pool, 0});
  Executor executor(program, 0, *device);
  uint32_t evaluate = *findEntry(program.plan(), "evaluate");
  for (auto _ : state) {
    fillExchanges(executor, program, 0, 1);
    executor.run(evaluate);
  }
  state.counters["seconds_per_op"] =
      benchmark::Counter(static_cast<double>(instructionsOf(executor.rankProgram(), evaluate) * state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Instruction);

void BM_Floor(benchmark::State &state) {
  constexpr int calls = 1000;
  pb::Plan plan = samplePlan(manyCalls());
  CpuBackend backend(plan, 1);
  KernelFunction kernel = nullptr;
  for (int i = 0; i < plan.kernels_size(); ++i)
    if (plan.kernels(i).symbol() == "toy_block")
      kernel = backend.kernel(i);
  alignas(64) float memory[64] = {};
  void *buffers[] = {memory, memory, memory, memory, memory};
  int64_t scalars[] = {1, 1};
  for (auto _ : state)
    for (int i = 0; i < calls; ++i) {
      benchmark::DoNotOptimize(buffers);
      kernel(buffers, scalars, 0, 1);
    }
  state.counters["seconds_per_op"] =
      benchmark::Counter(double(calls) * state.iterations(), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Floor);

/// Measures the cost of starting and finishing a collective, and of one access to the data, with a group of one rank.
void BM_AllReduce(benchmark::State &state) {
  int64_t elements = state.range(0);
  LocalWorld world(1);
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  uint32_t group = communicator->joinGroup(std::vector<int>{0}, /*queue=*/1);
  CollectiveShape shape{pb::Transfer::ALL_REDUCE, pb::SUM, pb::F32, {elements}};
  std::vector<float> values(elements);
  void *place = values.data();
  for (auto _ : state) {
    Ticket ticket = communicator->startCollective(group, shape, &place, &place);
    communicator->wait(ticket, 100);
  }
  state.SetBytesProcessed(state.iterations() * elements * 8);
}
BENCHMARK(BM_AllReduce)->Arg(1)->Arg(1 << 20);

} // namespace
} // namespace espalier::rt

BENCHMARK_MAIN();
