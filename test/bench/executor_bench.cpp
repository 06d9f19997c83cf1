// What the executor adds to each instruction: a subprogram of empty kernels with six buffers and
// six scalars each. The floor is the call of the kernel itself through a pointer.
#include "runtime/executor.h"

#include "runtime/abi.h"
#include "runtime/comm/local.h"
#include "runtime/device/cpu/backend.h"
#include "test/runtime/sample_plan.h"

#include <benchmark/benchmark.h>

namespace espalier::rt {
namespace {

constexpr int instructions = 1000;

class NoClient final : public StepClient {
public:
  void loadInputs(uint32_t, std::byte *) override {}
  void updateScalars(Scalars &) override {}
};

/// The sample plan with the optimizer of its first block replaced by launches that do nothing:
/// Apply is 0.
pb::Plan emptyLaunches() {
  pb::Plan plan = samplePlan({});
  for (pb::Subprogram &subprogram : *plan.mutable_subprograms()) {
    if (subprogram.name() != "embed.optimizer")
      continue;
    pb::Instruction launch = subprogram.instructions(0);
    for (int i = 0; i < 2; ++i)
      *launch.mutable_launch()->add_buffers() = launch.launch().buffers(3);
    for (int i = 0; i < 5; ++i)
      launch.mutable_launch()->add_scalars()->set_step(i);
    subprogram.clear_instructions();
    for (int i = 0; i < instructions; ++i)
      *subprogram.add_instructions() = launch;
  }
  pb::Stage *stage = plan.mutable_stages(0);
  stage->clear_schedule();
  stage->add_schedule()->set_kind(pb::Action::OPTIMIZER);
  return plan;
}

void BM_Instruction(benchmark::State &state) {
  Program program(emptyLaunches());
  LocalWorld world(1);
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  ThreadPool pool(1, 0);
  std::unique_ptr<Device> device = program.backend().open(program.plan().stages(0), {*communicator, pool, 0});
  Executor executor(program, 0, *device);
  NoClient client;
  int64_t step = 0;
  for (auto _ : state)
    executor.runStep(step++, client);
  state.counters["seconds_per_op"] = benchmark::Counter(double(instructions) * state.iterations(),
                                                        benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Instruction);

void BM_Floor(benchmark::State &state) {
  Program program(emptyLaunches());
  CpuBackend backend(program.plan(), 1);
  KernelFunction kernel = nullptr;
  for (const pb::Subprogram &subprogram : program.plan().subprograms())
    for (const pb::Instruction &instruction : subprogram.instructions())
      if (instruction.launch().scalars_size() == 6)
        kernel = backend.kernel(instruction.launch().kernel());
  alignas(64) float memory[64] = {};
  void *buffers[] = {memory, memory, memory, memory, memory, memory};
  int64_t scalars[6] = {12};
  for (auto _ : state)
    for (int i = 0; i < instructions; ++i) {
      benchmark::DoNotOptimize(buffers);
      kernel(buffers, scalars, 0, 12);
    }
  state.counters["seconds_per_op"] = benchmark::Counter(double(instructions) * state.iterations(),
                                                        benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Floor);

/// A group of one: the cost of starting and finishing a collective, and of touching the data once.
void BM_AllReduce(benchmark::State &state) {
  int64_t elements = state.range(0);
  LocalWorld world(1);
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  uint32_t group = communicator->joinGroup(std::vector<int>{0});
  CollectiveShape shape{pb::Collective::ALL_REDUCE, pb::Collective::SUM, pb::F32, {elements}};
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
