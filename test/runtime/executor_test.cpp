// The step path: it does not allocate, runs every part of a job once, and forwards exceptions of any thread.
#include "runtime/executor.h"

#include "runtime/comm/local.h"
#include "test/runtime/sample_plan.h"
#include "test/runtime/sample_ranks.h"

#include <atomic>
#include <cstdlib>
#include <gmock/gmock.h>
#include <new>
#include <random>
#include <thread>

namespace {

/// Counts every allocation of the program by operator new.
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

using testing::HasSubstr;

/// A device that forwards every call.
class Wrapped : public Device {
public:
  explicit Wrapped(std::unique_ptr<Device> device) : device(std::move(device)) {}
  uint64_t allocatedBytes() const override { return device->allocatedBytes(); }
  void copyIn(uint64_t to, const void *from, size_t bytes) override { device->copyIn(to, from, bytes); }
  void copyOut(void *to, uint64_t from, size_t bytes) override { device->copyOut(to, from, bytes); }
  std::unique_ptr<HostBlock> allocateHost(uint64_t bytes) override { return device->allocateHost(bytes); }
  void copyOut(std::span<std::byte> to, std::span<const DeviceRange> from) override { device->copyOut(to, from); }
  void fill(uint64_t to, int value, size_t bytes) override { device->fill(to, value, bytes); }
  std::byte *host(uint64_t offset) override { return device->host(offset); }
  void launch(const KernelLaunch &launch) override { device->launch(launch); }
  void call(const LibraryLaunch &launch) override { device->call(launch); }
  uint32_t addTransfer(const TransferShape &transfer) override { return device->addTransfer(transfer); }
  TransferTicket start(const TransferStart &transfer) override { return device->start(transfer); }
  void wait(TransferTicket ticket) override { device->wait(ticket); }
  void progress() override { device->progress(); }

protected:
  const std::unique_ptr<Device> device;
};

/// Ranks with random delays of up to 50 us before every instruction and wait.
class Late final : public Wrapped {
public:
  Late(std::unique_ptr<Device> device, uint32_t seed) : Wrapped(std::move(device)), random(seed) {}
  void launch(const KernelLaunch &launch) override {
    pause();
    device->launch(launch);
  }
  void wait(TransferTicket ticket) override {
    pause();
    device->wait(ticket);
  }

private:
  void pause() {
    if (uint32_t length = random() % 100; length < 50)
      std::this_thread::sleep_for(std::chrono::microseconds(length));
  }
  std::minstd_rand random;
};

/// Runs all its transfers one at a time, in issue order.
class OneLine final : public Wrapped {
public:
  using Wrapped::Wrapped;
  uint32_t addTransfer(const TransferShape &transfer) override {
    TransferShape inLine = transfer;
    inLine.queue = 1;
    return device->addTransfer(inLine);
  }
};

SampleOptions split(int pp, int dp, int tp, bool zero) {
  SampleOptions options;
  options.pp = pp;
  options.dp = dp;
  options.tp = tp;
  options.zero = zero;
  options.microBatches = 6;
  return options;
}

const SampleOptions splits[] = {split(1, 1, 1, false), split(2, 2, 1, true), split(3, 1, 2, false),
                                split(2, 2, 2, true), split(4, 1, 1, false)};

std::string named(const SampleOptions &o) {
  return "pp" + std::to_string(o.pp) + " dp" + std::to_string(o.dp) + " tp" + std::to_string(o.tp);
}

// Every plan gives the loss of one rank that runs all samples of a step as micro-batches.
TEST(Executor, SplitsTrainAlike) {
  SampleOptions one;
  one.microBatches = 6;
  RanksResult whole = runRanks(Program(samplePlan(one), 1), 5);
  ASSERT_GT(whole.results[0][LossSum], 0);
  EXPECT_NE(whole.results[4][LossSum], whole.results[0][LossSum]);
  for (auto [pp, tp] : {std::pair(2, 1), {3, 2}, {1, 2}, {4, 1}}) {
    RanksResult parts = runRanks(Program(samplePlan(split(pp, 1, tp, false)), 1), 5);
    for (int step = 0; step <= 5; ++step) {
      EXPECT_NEAR(parts.results[step][LossSum] / whole.results[step][LossSum], 1, 1e-4) << pp << tp << step;
      EXPECT_EQ(parts.results[step][TokenCount], whole.results[step][TokenCount]);
      EXPECT_NEAR(parts.results[step][SquaredNorm], whole.results[step][SquaredNorm],
                  1e-3 * whole.results[step][SquaredNorm]);
    }
  }
}

// Replicas sum in another order than micro-batches. Sharding changes no bit of an update, except through the clipped
// norm.
TEST(Executor, ReplicasTrainAlikeWithAndWithoutZero) {
  SampleOptions one;
  one.microBatches = 4;
  RanksResult whole = runRanks(Program(samplePlan(one), 1), 4);
  SampleOptions two = split(1, 2, 1, false);
  two.microBatches = 2;
  RanksResult replicas = runRanks(Program(samplePlan(two), 1), 3);
  two.zero = true;
  RanksResult parts = runRanks(Program(samplePlan(two), 1), 3);
  for (int step = 0; step <= 3; ++step) {
    float norm = replicas.results[step][SquaredNorm];
    EXPECT_EQ(parts.results[step][LossSum], replicas.results[step][LossSum]);
    EXPECT_NEAR(parts.results[step][SquaredNorm], norm, 1e-5 * norm);
  }
  for (int step = 0; step < 3; ++step)
    EXPECT_NEAR(replicas.results[step][LossSum] / whole.results[step][LossSum], 1, 1e-4) << step;
  EXPECT_EQ(replicas.parameters[0], replicas.parameters[1]);
}

TEST(Executor, RoundsEqualUnrolledActions) {
  for (SampleOptions options : splits) {
    RanksResult folded = runRanks(Program(samplePlan(options), 1), 3);
    options.folds = false;
    EXPECT_EQ(runRanks(Program(samplePlan(options), 1), 3), folded) << named(options);
  }
}

// Results are bitwise equal under any arrival order.
TEST(Executor, InterleavingsChangeNoBit) {
  for (const SampleOptions &options : splits) {
    Program program(samplePlan(options), 1);
    RanksResult expected = runRanks(program, 3);
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      auto late = [&](std::unique_ptr<Device> device, int rank) {
        return std::make_unique<Late>(std::move(device), seed * 100 + rank);
      };
      EXPECT_EQ(runRanks(program, 3, late), expected) << named(options) << " seed " << seed;
    }
  }
}

// R10: no plan may hang on a device that runs one transfer at a time.
TEST(Executor, OneTransferAtATimeDoesNotHang) {
  for (const SampleOptions &options : splits) {
    Program program(samplePlan(options), 1);
    auto oneLine = [](std::unique_ptr<Device> device, int) { return std::make_unique<OneLine>(std::move(device)); };
    EXPECT_EQ(runRanks(program, 3, oneLine), runRanks(program, 3)) << named(options);
  }
}

/// One rank of a plan.
class OneRank : public testing::Test {
protected:
  Program program{samplePlan({}), 2};
  LocalWorld world{1};
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  ThreadPool pool{2, 0};
  std::unique_ptr<Device> device = program.backend().open(program.plan().stages(0), {*communicator, pool, 0});
  Executor executor{program, 0, *device};
};

TEST_F(OneRank, EntriesAllocateNothing) {
  SKIP_WITHOUT_COUNTS;
  auto turn = [&](int step) {
    for (uint32_t entry : {0u, 1u}) {
      fillExchanges(executor, program, step, program.plan().entries(entry).micro_batches());
      executor.run(entry);
    }
  };
  turn(0);
  int64_t before = allocations;
  for (int step = 1; step < 10; ++step)
    turn(step);
  EXPECT_EQ(allocations, before);
}

// The exchanges have two copies: the host fills one copy while an entry reads the other.
TEST_F(OneRank, HostBuffersAlternate) {
  const pb::Stage &stage = program.plan().stages(0);
  uint32_t tokens = *findExchange(stage, "tokens"), results = *findExchange(stage, "results");
  std::byte *filled[3], *read[3];
  for (int turn = 0; turn < 3; ++turn) {
    fillExchanges(executor, program, turn, 4);
    filled[turn] = executor.exchange(tokens, 1).data();
    EXPECT_EQ(executor.exchange(tokens, 2).data() - filled[turn],
              executor.exchange(tokens, 1).data() - executor.exchange(tokens, 0).data());
    executor.run(0);
    read[turn] = executor.exchange(results).data();
  }
  EXPECT_NE(filled[0], filled[1]);
  EXPECT_EQ(filled[0], filled[2]);
  EXPECT_NE(read[0], read[1]);
  EXPECT_EQ(read[0], read[2]);
}

/// Copies of empty shards, as on ranks that hold nothing of a parameter. UBSan reports a fault.
TEST_F(OneRank, CopiesOfNoBytesAcceptNull) {
  device->copyIn(0, nullptr, 0);
  device->copyOut(nullptr, 0, 0);
}

TEST_F(OneRank, FindsByName) {
  EXPECT_EQ(findEntry(program.plan(), "evaluate"), 1u);
  EXPECT_EQ(findRegion(program.plan(), "state"), 2u);
  EXPECT_EQ(findEntry(program.plan(), "decode"), std::nullopt);
  EXPECT_EQ(findRegion(program.plan(), "cache"), std::nullopt);
  EXPECT_EQ(findExchange(program.plan().stages(0), "text"), std::nullopt);
}

// A rank's shard follows those of the ranks before it.
TEST(Executor, AddressesSelectTheShardOfTheRank) {
  Program program(samplePlan(split(1, 2, 1, true)), 1);
  uint64_t begin[2] = {};
  LocalWorld world(2);
  std::vector<std::thread> threads;
  for (int rank : {0, 1})
    threads.emplace_back([&, rank] {
      std::unique_ptr<Communicator> communicator = world.communicator(rank);
      ThreadPool pool(1, 0);
      std::unique_ptr<Device> device = program.backend().open(program.plan().stages(0), {*communicator, pool, 0});
      Executor executor(program, rank, *device);
      pb::Buffer part = program.plan().buckets(1).stored();
      part.set_bytes(part.bytes() / 2);
      part.set_part(DP);
      begin[rank] = executor.address(1, part);
      executor.barrier();
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(begin[1] - begin[0], program.plan().buckets(1).stored().bytes() / 2);
}

/// Returns the error if rank 1 of two stages fails before instruction 0 of an action.
std::string failureAt(uint32_t action) {
  Program program(samplePlan(split(2, 1, 1, false)), 1);
  auto prepare = [&](Executor &executor) { executor.fault = Fault{.rank = 1, .step = 1, .action = action}; };
  try {
    runRanks(program, 3, {}, prepare);
  } catch (const RankFailure &failure) {
    return failure.what();
  }
  return "";
}

TEST(Executor, ReportsWhereARankFails) {
  // START, WAIT, RUN forward, RUN backward, then rounds of START, WAIT, RUN, WAIT, RUN.
  EXPECT_EQ(failureAt(3), "rank 1 (stage 1) in step 2, action 3 of train_step: RUN backward of head .. block.2, "
                          "micro-batch 0, head.backward of head, scale at toy.yaml:3:5: injected fault; all ranks "
                          "stopped");
  EXPECT_THAT(failureAt(3 + 5 + 3),
              HasSubstr("action 11 of train_step: RUN forward of block.2 .. head, micro-batch 2"));
}

TEST(Executor, ReportsTheAwaitedTransfer) {
  Program program(samplePlan(split(2, 1, 1, false)), 1);
  class Broken final : public Wrapped {
  public:
    using Wrapped::Wrapped;
    void wait(TransferTicket ticket) override {
      if (ticket.number == 2)
        throw std::runtime_error("the line is cut");
      device->wait(ticket);
    }
  };
  auto broken = [](std::unique_ptr<Device> device, int rank) -> std::unique_ptr<Device> {
    if (rank == 0)
      return device;
    return std::make_unique<Broken>(std::move(device));
  };
  try {
    runRanks(program, 1, broken);
    FAIL() << "the wait passes";
  } catch (const RankFailure &failure) {
    EXPECT_THAT(failure.what(), HasSubstr("WAIT labels/1, in/1: the line is cut"));
  }
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

TEST(ThreadPool, ForwardsExceptionsAndContinues) {
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
