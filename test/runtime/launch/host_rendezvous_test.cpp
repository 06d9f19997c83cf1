// Tests the rendezvous of processes that were started independently on one host.
#include "runtime/launch/host_rendezvous.h"

#include "runtime/comm/shm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier::rt::launch {
namespace {

using testing::HasSubstr;

constexpr Milliseconds soon{300}, amply{20000};
constexpr size_t operandBytes = size_t{1} << 20;

/// Each test has another name, because tests may run at the same time.
Topology place(int rank, int world) {
  Topology topology;
  topology.launcher = Topology::Torchrun;
  topology.ranks = {rank};
  topology.world = topology.hostRanks = world;
  topology.hostRendezvous =
      fmt::format("{}-{}", testing::UnitTest::GetInstance()->current_test_info()->name(), getppid());
  return topology;
}

Member member(int rank, const std::string &plan = "1234") { return {plan, "0.2", {rank}, "", getpid()}; }

/// Returns the error of the first of two processes, or an empty string. The other process runs `other`.
std::string refusalOfFirst(const std::function<void()> &other) {
  pid_t child = fork();
  if (child == 0) {
    other();
    _exit(0);
  }
  std::string refusal;
  Topology first = place(0, 2);
  first.hostRendezvous = fmt::format("{}-{}", testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
  try {
    HostRendezvous(first, member(0), amply);
  } catch (const LaunchError &error) {
    refusal = error.what();
  }
  waitpid(child, nullptr, 0);
  return refusal;
}

/// Returns the error of a process that waits alone.
template <typename Error = LaunchError> std::string refusalAlone(int rank, std::function<int()> stopSignal = {}) {
  try {
    HostRendezvous(place(rank, 3), member(rank), soon, std::move(stopSignal));
  } catch (const Error &error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(HostRendezvous, TheMemoryHasOneAddress) {
  pid_t child = fork();
  if (child == 0) {
    HostRendezvous rendezvous(place(1, 2), member(1), amply);
    HostRendezvous::Setup setup = rendezvous.receive();
    std::unique_ptr<ShmWorld> world = ShmWorld::join(setup.file);
    std::unique_ptr<Communicator> comm = world->communicator(1);
    auto *place = reinterpret_cast<uint64_t *>(comm->allocate(64));
    *place = reinterpret_cast<uint64_t>(place);
    Ticket ticket = comm->startSend(comm->openSend(0, 0), place, 8);
    comm->wait(ticket, 10);
    _exit(setup.checkpointToken == "hello" ? 0 : 1);
  }
  Topology topology = place(0, 2);
  topology.hostRendezvous =
      fmt::format("{}-{}", testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
  HostRendezvous rendezvous(topology, member(0), amply);
  std::unique_ptr<ShmWorld> world = ShmWorld::openForOthers(2, operandBytes);
  rendezvous.send({world->file(), "hello"});
  std::unique_ptr<Communicator> comm = world->communicator(0);
  auto *place = reinterpret_cast<uint64_t **>(comm->allocate(64));
  Ticket ticket = comm->startReceive(comm->openReceive(1, 0), place, 8);
  comm->wait(ticket, 10);
  EXPECT_EQ(**place, reinterpret_cast<uint64_t>(*place)) << "the other's address is not valid here";
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(rendezvous.neighbours().size(), 1u);
  EXPECT_THAT(rendezvous.neighbours().front().ranks, testing::ElementsAre(1));
}

TEST(HostRendezvous, ReportsMissingRanks) {
  EXPECT_EQ(refusalAlone(0),
            "rank 1 has not come within 0.3 seconds: 1 of 3 ranks of this host have; start all of them");
  EXPECT_EQ(refusalAlone(2), "rank 0 has not come to this host within 0.3 seconds; start all ranks");
}

TEST(HostRendezvous, ASignalEndsTheWait) {
  EXPECT_EQ(refusalAlone<ReportedElsewhere>(0, [] { return SIGTERM; }), "another process reports");
}

TEST(HostRendezvous, AnotherPlanIsRefused) {
  EXPECT_EQ(refusalOfFirst([] {
              try {
                HostRendezvous(place(1, 2), member(1, "5678"), amply).receive();
              } catch (const ReportedElsewhere &) {
              }
            }),
            "rank 1 has another plan (hash 5678, rank 0's is 1234); give all the same file");
}

TEST(HostRendezvous, ARankReportsItsStartUpFailure) {
  EXPECT_THROW(refusalOfFirst([] {
                 Member own = member(1);
                 own.refusal = "no device";
                 HostRendezvous(place(1, 2), own, amply);
               }),
               ReportedElsewhere);
}

TEST(HostRendezvous, TheFirstRanksFailureEndsTheWait) {
  pid_t child = fork();
  if (child == 0) {
    try {
      HostRendezvous(place(1, 2), member(1), amply).receive();
    } catch (const ReportedElsewhere &error) {
      _exit(error.status);
    }
    _exit(0);
  }
  Topology topology = place(0, 2);
  topology.hostRendezvous =
      fmt::format("{}-{}", testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
  Member own = member(0);
  own.refusal = "no device";
  EXPECT_THROW(HostRendezvous(topology, own, amply), LaunchError);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST(HostRendezvous, RejectsARankThatJoinsTwice) {
  EXPECT_EQ(refusalOfFirst([] {
              HostRendezvous stranger(place(7, 2), member(7), amply);
              HostRendezvous(place(1, 2), member(1), amply);
            }),
            "two processes say that they are rank 7");
}

TEST(HostRendezvous, RejectsTwoRunsOfOneName) {
  Topology topology = place(0, 1);
  HostRendezvous rendezvous(topology, member(0), soon);
  int other = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = fmt::format("espalier-{}-{}", geteuid(), topology.hostRendezvous);
  name.copy(address.sun_path + 1, name.size());
  ASSERT_EQ(bind(other, reinterpret_cast<sockaddr *>(&address), offsetof(sockaddr_un, sun_path) + 1 + name.size()), 0)
      << "a rendezvous that is over has its name still";
  EXPECT_THAT(refusalAlone(0), HasSubstr("another run on this host has the name " + topology.hostRendezvous));
  close(other);
}

TEST(ShmWorld, ReportsAnAddressInUse) {
  std::unique_ptr<ShmWorld> world = ShmWorld::openForOthers(1, operandBytes);
  EXPECT_THROW(ShmWorld::join(dup(world->file())), MemoryError);
}

} // namespace
} // namespace espalier::rt::launch
