// Processes of one host die, hang or fail. The other processes end within seconds, and the first failure is reported.
#include "runtime/comm/local.h"
#include "runtime/processes/processes.h"
#include "test/sanitizer.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds, std::chrono::seconds;

constexpr size_t operandBytes = size_t{8} << 20;
/// The time limits assume an idle machine. The test therefore raises its priority if the system allows it.
[[maybe_unused]] const int goesFirst = setpriority(PRIO_PROCESS, 0, -10);

/// Runs all-reduces in a loop. Returns 0 when the rank is stopped.
int sumUntilStopped(ShmWorld &world, int rank) {
  std::unique_ptr<Communicator> comm = world.communicator(rank);
  std::vector<int> members;
  for (int i = 0; i < world.ranks(); ++i)
    members.push_back(i);
  uint32_t group = comm->joinGroup(members, 1);
  CollectiveShape shape{.elements = {20000}};
  void *place = comm->allocate(20000 * sizeof(float));
  try {
    for (;;) {
      Ticket ticket = comm->startCollective(group, shape, &place, &place);
      comm->wait(ticket, 10);
    }
  } catch (const RankStopped &) {
    return 0;
  }
}

struct Loss {
  int signal, afterMilliseconds;
  Patience patience = {};
};
void PrintTo(const Loss &loss, std::ostream *out) {
  *out << strsignal(loss.signal) << " after " << loss.afterMilliseconds << " ms";
}

/// Shorter than in a real run, to keep the tests fast.
constexpr Patience aSecond{.silentPolls = 10};

class LostRank : public testing::TestWithParam<Loss> {};

TEST_P(LostRank, StopsTheOthersWithinFiveSeconds) {
  constexpr int victim = 2;
  ShmWorld world(4, operandBytes);
  std::vector<Process> processes = spawn(world, [&](int rank) { return sumUntilStopped(world, rank); });
  Clock::time_point lost;
  std::optional<Failure> failure;
  {
    std::jthread killer([&] {
      std::this_thread::sleep_for(milliseconds(GetParam().afterMilliseconds));
      lost = Clock::now();
      kill(processes[victim].id, GetParam().signal);
    });
    failure = supervise(processes, world, {.patience = GetParam().patience});
  }
  EXPECT_LT(Clock::now() - lost, seconds(5 * slowdown));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, victim);
  EXPECT_EQ(failure->message,
            GetParam().signal == SIGKILL
                ? "its process was killed by signal 9 (Killed)"
                : fmt::format("its process has given no sign of life for {:.1f} seconds: it was stopped",
                              GetParam().patience.silentPolls / 10.0));
  for (const Process &process : processes)
    EXPECT_EQ(process.status, process.rank == victim ? SIGKILL : 0) << "rank " << process.rank;
}

INSTANTIATE_TEST_SUITE_P(KilledOrStopped, LostRank,
                         testing::Values(Loss{SIGKILL, 0}, Loss{SIGKILL, 5}, Loss{SIGKILL, 50},
                                         Loss{SIGSTOP, 0, aSecond}, Loss{SIGSTOP, 5}, Loss{SIGSTOP, 50, aSecond}));

/// Returns the failure that supervision reports if rank 1 of two runs `body` and rank 0 runs all-reduces with it.
std::optional<Failure> failureOf(const std::function<int(ShmWorld &)> &body) {
  ShmWorld world(2, operandBytes);
  std::vector<Process> processes =
      spawn(world, [&](int rank) { return rank == 1 ? body(world) : sumUntilStopped(world, rank); });
  std::optional<Failure> failure = supervise(processes, world);
  EXPECT_EQ(processes[0].status, 0) << "the other was not stopped";
  return failure;
}

TEST(Processes, AnExceptionIsTheRanksFailure) {
  std::optional<Failure> failure = failureOf([](ShmWorld &) -> int { throw std::runtime_error("no more paper"); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->message, "no more paper");
}

TEST(Processes, ANonzeroStatusIsAFailure) {
  std::optional<Failure> failure = failureOf([](ShmWorld &) { return 3; });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->sentence(), "rank 1: its process ended with status 3; all ranks stopped");
}

/// A library calls exit with status 0 before the work is done.
TEST(Processes, LeavingEarlyIsAFailure) {
  std::optional<Failure> failure = failureOf([](ShmWorld &) -> int { _exit(0); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "its process ended before its work was done");
}

/// The last output of this rank takes longer than the silence that a working rank may keep.
TEST(Processes, ARankThatHasDoneItsWorkMayEndSlowly) {
  ShmWorld world(2, operandBytes);
  std::vector<Process> processes = spawn(world, [](int rank) {
    auto write = [](void *, const char *, size_t bytes) -> ssize_t {
      std::this_thread::sleep_for(milliseconds(500));
      return static_cast<ssize_t>(bytes);
    };
    if (rank == 1)
      std::fputs("the end",
                 fopencookie(nullptr, "w", {.read = nullptr, .write = write, .seek = nullptr, .close = nullptr}));
    return 0;
  });
  EXPECT_FALSE(supervise(processes, world, {.patience = {.pollMilliseconds = 20, .silentPolls = 5}}));
  for (const Process &process : processes)
    EXPECT_EQ(process.status, 0) << "rank " << process.rank;
}

/// This rank does not check for a stop, and would run for a minute.
TEST(Processes, RanksThatDoNotStopAreKilled) {
  ShmWorld world(2, operandBytes);
  Clock::time_point begin = Clock::now();
  std::vector<Process> processes = spawn(world, [&](int rank) {
    if (rank == 0)
      return 1;
    std::this_thread::sleep_for(seconds(60));
    return 0;
  });
  std::optional<Failure> failure = supervise(processes, world);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 0);
  EXPECT_TRUE(WIFSIGNALED(*processes[1].status));
  EXPECT_LT(Clock::now() - begin, seconds(5 * slowdown));
}

/// Returns the failure of a rank that waits for peers whose launchers never arrive.
std::optional<Failure> failureAlone(Supervision how) {
  ShmWorld world(1, operandBytes, /*first=*/3);
  how.patience = {.stoppingPolls = 2};
  launch::Launchers others([] { return std::optional<launch::Rendezvous>(); }, world.keyValues(), how.patience);
  how.others = &others;
  std::vector<Process> processes = spawn(world, [](int) {
    std::this_thread::sleep_for(seconds(60));
    return 0;
  });
  std::optional<Failure> failure = supervise(processes, world, how);
  EXPECT_TRUE(WIFSIGNALED(*processes[0].status));
  return failure;
}

/// Slurm sends SIGTERM to processes that wait for a peer that failed to start.
TEST(Processes, ASignalEndsAWaitForPeers) {
  Clock::time_point begin = Clock::now();
  std::optional<Failure> failure = failureAlone({.endSignal = [] { return SIGTERM; }});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->endSignal, SIGTERM);
  EXPECT_LT(Clock::now() - begin, seconds(5));
}

TEST(Processes, GivesUpWaitingForPeers) {
  std::optional<Failure> failure = failureAlone({.rendezvousPolls = 10});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 3);
  EXPECT_TRUE(failure->isEcho);
  EXPECT_EQ(failure->endSignal, 0);
  EXPECT_EQ(failure->message, "not all ranks have begun within 1 seconds: one ended before, or their hosts do not "
                              "reach each other");
}

/// Computes for about a millisecond on one core.
void compute() {
  volatile float value = 1;
  for (int i = 0; i < 500'000; ++i)
    value = value * 1.000001f;
}

/// Returns the seconds that eight ranks need for rounds of computation while every core has other work. With `meet`, a
/// barrier follows each round.
double secondsOfEight(bool meet) {
  constexpr int rounds = 30;
  ShmWorld world(8, operandBytes);
  std::atomic<bool> isOver = false;
  std::vector<std::jthread> others;
  Clock::time_point begin = Clock::now();
  std::vector<Process> processes = spawn(world, [&](int rank) {
    std::unique_ptr<Communicator> comm = world.communicator(rank);
    uint32_t group = comm->joinGroup(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, 1);
    CollectiveShape shape{.elements = {10000}};
    void *place = comm->allocate(10000 * sizeof(float));
    for (int round = 0; round < rounds; ++round) {
      compute();
      Ticket ticket;
      if (meet)
        ticket = comm->startCollective(group, shape, &place, &place);
      comm->wait(ticket, 100);
    }
    return 0;
  });
  for (unsigned core = 0; core < std::thread::hardware_concurrency(); ++core)
    others.emplace_back([&] {
      while (!isOver)
        compute();
    });
  EXPECT_FALSE(supervise(processes, world));
  isOver = true;
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A waiting rank sleeps, so that the ranks that it waits for get its core.
TEST(Processes, WaitingRanksYieldTheirCores) {
  if (std::thread::hardware_concurrency() > 4)
    GTEST_SKIP() << "eight ranks are no crowd here";
  double alone = secondsOfEight(/*meet=*/false), together = secondsOfEight(/*meet=*/true);
  EXPECT_LT(together, 3 * alone) << "alone " << alone << " s, together " << together << " s";
  RecordProperty("ratio", std::to_string(together / alone));
}

TEST(Processes, DieWithTheirParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t parent = fork();
  if (parent == 0) {
    ShmWorld world(2, operandBytes);
    spawn(world, [&](int rank) { return sumUntilStopped(world, rank); });
    _exit(0);
  }
  close(ends[1]);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "all that could write have ended";
  close(ends[0]);
  waitpid(parent, nullptr, 0);
}

TEST(Processes, LimitTheSharedMemory) {
  ShmWorld world(2, operandBytes);
  std::unique_ptr<Communicator> comm = world.communicator(0);
  EXPECT_THROW(comm->allocate(size_t{1} << 30), MemoryError);
  EXPECT_THROW(comm->allocate(SIZE_MAX - 100), MemoryError);
  EXPECT_TRUE(comm->allocate(4096)) << "a refusal takes nothing";
  EXPECT_THROW(ShmWorld(2, SIZE_MAX - 100), MemoryError);
  EXPECT_THROW(ShmWorld(2, size_t{1} << 50), MemoryError);
}

/// Limits this process to `more` further open files. Its forked children may open more, because a sanitizer reads
/// memory through a pipe.
class FewFiles {
public:
  explicit FewFiles(int more) {
    int next = dup(0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit few{static_cast<rlim_t>(next + more), before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    pthread_atfork(nullptr, nullptr, [] {
      rlimit own{};
      getrlimit(RLIMIT_NOFILE, &own);
      own.rlim_cur = own.rlim_max;
      setrlimit(RLIMIT_NOFILE, &own);
    });
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before); }

private:
  rlimit before{};
};

/// Returns the message that `work` throws.
std::string refusalOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const MemoryError &error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Processes, ReportSystemErrors) {
  LocalWorld threads(1);
  EXPECT_EQ(refusalOf([&] { threads.communicator(0)->allocate(size_t{1} << 50); }),
            "the system refuses 1125899906842624 bytes that ranks share");
  EXPECT_EQ(refusalOf([] {
              FewFiles none(0);
              ShmWorld(1, operandBytes);
            }),
            "the system refuses 76546048 bytes that processes share: Too many open files");
  ShmWorld world(3, operandBytes);
  EXPECT_EQ(refusalOf([&] {
              FewFiles two(2);
              spawn(world, [&](int rank) { return sumUntilStopped(world, rank); });
            }),
            "the system refuses process 3 of 3: Too many open files");
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left";
}

constexpr Patience threePolls{.pollMilliseconds = 100, .silentPolls = 3};

/// Polls that another rank's end woke early do not count towards the timeout.
TEST(Watch, CountsOnlyItsOwnPolls) {
  Watch watch(2, threePolls);
  std::vector<Sight> sights{{.beats = 5}, {.beats = 1}};
  EXPECT_FALSE(watch.judge(sights, /*isPoll=*/true));
  for (int i = 0; i < 100; ++i)
    EXPECT_FALSE(watch.judge(sights, /*isPoll=*/false));
  for (int poll = 0; poll < 3; ++poll) {
    ++sights[0].beats;
    std::optional<Failure> failure = watch.judge(sights, /*isPoll=*/true);
    EXPECT_EQ(failure.has_value(), poll == 2);
    if (failure)
      EXPECT_EQ(failure->rank, 1);
  }
}

TEST(Watch, AnExitPrecedesSilence) {
  Watch watch(2, {.pollMilliseconds = 100, .silentPolls = 1});
  std::vector<Sight> sights{{.beats = 0}, {.status = SIGSEGV}};
  std::optional<Failure> failure = watch.judge(sights, /*isPoll=*/true);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->message, "its process was killed by signal 11 (Segmentation fault)");
}

TEST(Watch, FinishedRanksMayBeSilent) {
  Watch watch(1, threePolls);
  std::vector<Sight> sights{{.status = 0, .hasLeft = true, .beats = 7}};
  for (int poll = 0; poll < 10; ++poll)
    EXPECT_FALSE(watch.judge(sights, /*isPoll=*/true));
}

} // namespace
} // namespace espalier::rt
