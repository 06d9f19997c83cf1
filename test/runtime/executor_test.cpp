// The step path: no allocation of ours, all parts of a job done once, exceptions of any thread
// passed on.
#include "runtime/executor.h"

#include "runtime/abi.h"
#include "runtime/comm/local.h"
#include "runtime/train/run.h"
#include "test/runtime/sample_plan.h"

#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>

namespace {

/// Every allocation of the program, by operator new of any kind.
std::atomic<int64_t> allocations{0};

} // namespace

#if __has_feature(thread_sanitizer)
#define SKIP_WITHOUT_COUNTS GTEST_SKIP() << "the thread sanitizer has an operator new of its own"
#else
#define SKIP_WITHOUT_COUNTS

void *operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void *memory = std::malloc(bytes))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
#endif

namespace espalier::rt {
namespace {

/// Only rank 0's bookkeeping of a step's record may allocate, outside of the schedule: the counts
/// are taken inside.
class CountingClient final : public StepClient {
public:
  explicit CountingClient(const Dataset &dataset, const Program &program)
      : sample(dataset.sample(0)), program(program) {}
  void loadInputs(uint32_t, std::byte *inputs) override {
    for (const pb::InputBuffer &input : program.plan().stages(0).inputs())
      std::copy(sample.tokens.begin(), sample.tokens.end(), reinterpret_cast<int32_t *>(inputs + input.offset()));
  }
  void updateScalars(Scalars &scalars) override {
    scalars[GradientScale] = 1 / scalars[TokenCount];
    scalars[Apply] = 1;
  }

private:
  Sample sample;
  const Program &program;
};

TEST(Executor, StepsAllocateNothing) {
  SKIP_WITHOUT_COUNTS;
  SampleOptions options;
  options.dp = options.tp = options.pp = 2;
  std::atomic<int64_t> before{0}, after{0};
  Program program(samplePlan(options));
  RunOptions run;
  run.dataset = sampleData(options.features);
  run.steps = 20;
  run.threads = 2;
  // Between the ends of steps 5 and 15 all ranks together: what grows is rank 0's list of records
  // alone.
  run.inspect = [&](const Executor &executor) {
    static thread_local int step = 0;
    ++step;
    if (executor.rankProgram().rank != 0)
      return;
    if (step == 5)
      before = allocations.load();
    if (step == 15)
      after = allocations.load();
  };
  RunResult result = runPlan(program, run);
  ASSERT_EQ(result.steps.size(), 20u);
  EXPECT_EQ(after - before, 0) << "ten steps of eight ranks allocated";
}

TEST(Executor, ScheduleAllocatesNothing) {
  SKIP_WITHOUT_COUNTS;
  Program program(samplePlan({}));
  std::shared_ptr<const Dataset> data = sampleData(12);
  LocalWorld world(1);
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  ThreadPool pool(2, 0);
  std::unique_ptr<Device> device = program.backend().open(program.plan().stages(0), {*communicator, pool, 0});
  Executor executor(program, 0, *device);
  CountingClient client(*data, program);
  Scalars scalars{};
  scalars[LossScale] = 1;
  executor.setScalars(scalars);
  executor.runStep(0, client);
  int64_t before = allocations;
  for (int step = 1; step < 10; ++step)
    executor.runStep(step, client);
  EXPECT_EQ(allocations, before);
}

TEST(ThreadPool, DoesEveryPartOnce) {
  for (int threads : {1, 2, 4})
    for (int spins : {0, 100}) {
      ThreadPool pool(threads, spins);
      for (int64_t parts : {0, 1, 2, 5, 100}) {
        std::vector<std::atomic<int>> done(parts + 1);
        pool.run(
            parts,
            [](void *context, int64_t part, int) { ++(*static_cast<std::vector<std::atomic<int>> *>(context))[part]; },
            &done);
        for (int64_t i = 0; i < parts; ++i)
          EXPECT_EQ(done[i], 1);
      }
    }
}

TEST(ThreadPool, PassesExceptionsOnAndGoesOn) {
  ThreadPool pool(3, 0);
  auto fail = [](void *, int64_t part, int) {
    if (part == 7)
      throw std::runtime_error("part 7");
  };
  for (int round = 0; round < 20; ++round)
    EXPECT_THROW(pool.run(20, fail, nullptr), std::runtime_error);
  EXPECT_NO_THROW(pool.run(5, fail, nullptr));
}

} // namespace
} // namespace espalier::rt
