// Tests launchers of a run over loopback. The test calls each poll explicitly, so that nothing depends on the speed of
// the machine.
#include "runtime/launch/launchers.h"

#include "runtime/launch/channel_address.h"

#include <csignal>
#include <future>
#include <gmock/gmock.h>

namespace espalier::rt::launch {
namespace {

using testing::HasSubstr;

constexpr Patience patience{.silentPolls = 20};

/// A launcher with the notices of its host.
struct Host {
  std::unique_ptr<KeyValueStore> keyValues = std::make_unique<KeyValueStore>(); // value-initialised: an empty list
  std::unique_ptr<Launchers> launchers;
};

class LaunchersTest : public testing::Test {
protected:
  /// Adds a launcher of one rank. The existing launchers poll while it joins.
  void join(int rank, int world, const std::string &plan = "plan", int ranksPerHost = 1) {
    std::string name = "host" + std::to_string(rank / ranksPerHost);
    Rendezvous rendezvous{.token = "token", .own = {plan, "1", {rank}, name, 100 + rank}};
    rendezvous.world = world;
    rendezvous.own.process = rank;
    rendezvous.own.processes = std::max(world, rank + 1);
    rendezvous.isFirst = rank == 0;
    rendezvous.endpoint = rank == 0 ? Endpoint{"127.0.0.1", 0} : parseEndpoint(*hosts[0].keyValues->find(channelKey));
    Host &host = hosts[rank];
    host.launchers =
        std::make_unique<Launchers>([rendezvous] { return std::optional(rendezvous); }, *host.keyValues, patience);
    if (rank == 0)
      return host.launchers->turn(false);
    auto joining = std::async(std::launch::async, [&] { host.launchers->turn(false); });
    while (joining.wait_for(Milliseconds(1)) != std::future_status::ready)
      hosts[0].launchers->turn(false);
  }

  void joinAll(int world) {
    for (int rank = 0; rank < world; ++rank)
      join(rank, world);
    turn(3);
  }

  /// Polls all launchers except one.
  void turn(int times, int without = -1, bool isPoll = true) {
    for (int i = 0; i < times; ++i)
      for (auto &[rank, host] : hosts)
        if (rank != without && host.launchers)
          host.launchers->turn(isPoll);
  }

  static Failure failureOf(int rank, const std::string &message, bool isEcho = false) {
    Failure failure;
    failure.rank = rank;
    failure.step = 7;
    failure.action = "RUN";
    failure.message = message;
    failure.isEcho = isEcho;
    return failure;
  }

  std::string reportOf(int rank) {
    RankFailure report = hosts[rank].launchers->report();
    std::string text = report.what();
    for (const Waiting &other : report.waiting)
      text += " " + std::to_string(other.rank) + ":" + other.transfer;
    return text;
  }

  std::map<int, Host> hosts;
};

TEST_F(LaunchersTest, AFailureStopsAllAndIsOneReport) {
  joinAll(3);
  hosts[1].launchers->report(failureOf(1, "no more paper"));
  turn(2);
  for (auto &[rank, host] : hosts) {
    ASSERT_TRUE(host.launchers->failure()) << rank;
    EXPECT_EQ(host.launchers->failure()->message, "no more paper");
    EXPECT_EQ(host.launchers->isReporter(), rank == 0);
  }
  hosts[0].launchers->settle({{0, "in/3"}});
  hosts[1].launchers->settle({});
  turn(1);
  EXPECT_FALSE(hosts[0].launchers->hasReport()) << "rank 2 has not said what it waits for";
  hosts[2].launchers->settle({{2, "out/1"}});
  turn(2);
  for (auto &[rank, host] : hosts)
    EXPECT_EQ(reportOf(rank), "rank 1 in step 8, RUN: no more paper; all ranks stopped 0:in/3 2:out/1");
}

/// A run stalls when no rank of any host moves. The first launcher names the rank at the end of the chain.
TEST_F(LaunchersTest, AStallNeedsAllHosts) {
  joinAll(3);
  StalledRank stuck{1, 60, {}, "fsync"}, first{0, 60, {{1}, "in/3"}, ""}, last{2, 60, {{0}, "out/1"}, ""};
  hosts[0].launchers->reportStall({first});
  hosts[1].launchers->reportStall({stuck});
  turn(3);
  EXPECT_FALSE(hosts[0].launchers->failure()) << "rank 2 moves";
  hosts[0].launchers->reportStall({});
  hosts[2].launchers->reportStall({last});
  turn(3);
  EXPECT_FALSE(hosts[0].launchers->failure()) << "rank 0 moves again";
  hosts[0].launchers->reportStall({first});
  turn(2);
  for (auto &[rank, host] : hosts) {
    ASSERT_TRUE(host.launchers->failure()) << rank;
    EXPECT_EQ(host.launchers->failure()->rank, 1);
    EXPECT_THAT(host.launchers->failure()->message, HasSubstr("rank 2 waits for out/1; its stack is fsync"));
  }
}

/// A host whose ranks have completed does not count.
TEST_F(LaunchersTest, AStallOfTheHostsThatAreLeft) {
  joinAll(2);
  hosts[1].launchers->leave();
  hosts[0].launchers->reportStall({{0, 60, {}, "fsync"}});
  turn(2);
  ASSERT_TRUE(hosts[0].launchers->failure());
  EXPECT_EQ(hosts[0].launchers->failure()->rank, 0);
}

TEST_F(LaunchersTest, TheWaitForReportsIsBounded) {
  joinAll(3);
  hosts[1].launchers->report(failureOf(1, "no more paper"));
  turn(2);
  hosts[0].launchers->settle({{0, "in/3"}});
  hosts[1].launchers->settle({});
  turn(10, /*without=*/2);
  EXPECT_EQ(reportOf(0), "rank 1 in step 8, RUN: no more paper; all ranks stopped 0:in/3 2:");
  EXPECT_EQ(reportOf(1), reportOf(0));
}

TEST_F(LaunchersTest, ARootCauseReplacesAnEcho) {
  joinAll(3);
  hosts[2].launchers->report(failureOf(2, "a transfer failed", /*isEcho=*/true));
  turn(1);
  EXPECT_FALSE(hosts[0].launchers->failure());
  hosts[1].launchers->report(failureOf(1, "killed"));
  turn(2);
  for (auto &[rank, host] : hosts)
    EXPECT_EQ(host.launchers->failure()->rank, 1) << rank;
}

TEST_F(LaunchersTest, AnEchoCountsWithoutARootCause) {
  joinAll(2);
  hosts[1].launchers->report(failureOf(1, "a transfer failed", /*isEcho=*/true));
  turn(4);
  for (auto &[rank, host] : hosts)
    EXPECT_EQ(host.launchers->failure()->rank, 1) << rank;
}

TEST_F(LaunchersTest, SilenceIsAFailure) {
  joinAll(3);
  turn(patience.silentPolls - 4, /*without=*/1);
  EXPECT_FALSE(hosts[0].launchers->failure()) << "not yet";
  turn(6, /*without=*/1);
  for (int rank : {0, 2}) {
    ASSERT_TRUE(hosts[rank].launchers->failure()) << rank;
    EXPECT_EQ(hosts[rank].launchers->failure()->rank, 1);
    EXPECT_THAT(hosts[rank].launchers->failure()->message,
                HasSubstr("its launcher on host1 (process 101) is lost: no sign of life for 2.0 seconds"));
  }
}

/// If all launchers were suspended, no poll counts as silence.
TEST_F(LaunchersTest, PollsAfterASuspensionDoNotCount) {
  joinAll(2);
  turn(10 * patience.silentPolls, /*without=*/1, /*isPoll=*/false);
  EXPECT_FALSE(hosts[0].launchers->failure());
}

TEST_F(LaunchersTest, TheSecondHostReportsIfTheFirstIsLost) {
  joinAll(3);
  hosts[0].launchers.reset();
  turn(1);
  for (int rank : {1, 2}) {
    ASSERT_TRUE(hosts[rank].launchers->failure());
    EXPECT_EQ(hosts[rank].launchers->isReporter(), rank == 1);
    EXPECT_EQ(hosts[rank].launchers->failure()->rank, 0);
    EXPECT_THAT(hosts[rank].launchers->failure()->message, HasSubstr("its launcher on host0 (process 100) is lost"));
    hosts[rank].launchers->settle({{rank, "in/0"}});
  }
  turn(1);
  EXPECT_THAT(reportOf(1), HasSubstr("all ranks stopped 1:in/0 2:"));
}

/// All launchers of the first host are lost. One of the other host reports.
TEST_F(LaunchersTest, ALauncherOfAnotherHostReportsIfTheFirstHostIsLost) {
  for (int rank = 0; rank < 4; ++rank)
    join(rank, 4, "plan", /*ranksPerHost=*/2);
  turn(3);
  hosts.erase(0);
  hosts.erase(1);
  turn(1);
  for (int rank : {2, 3}) {
    ASSERT_TRUE(hosts[rank].launchers->failure());
    EXPECT_EQ(hosts[rank].launchers->isReporter(), rank == 2);
  }
}

/// The first launcher does not report a failure after it has completed.
TEST_F(LaunchersTest, AFailureAfterTheFirstHostHasCompletedIsReported) {
  joinAll(3);
  hosts[0].launchers->leave();
  hosts[1].launchers->leave();
  turn(1);
  hosts[2].launchers->report(failureOf(2, "killed"));
  hosts[2].launchers->settle({});
  turn(8);
  ASSERT_TRUE(hosts[2].launchers->hasReport());
  EXPECT_THAT(reportOf(2), HasSubstr("killed"));
  EXPECT_TRUE(hosts[2].launchers->isReporter());
}

/// A failure before all have come reaches those that have, so that they do not blame the first launcher.
TEST_F(LaunchersTest, AnAbsentHostIsNamedOnAllHosts) {
  join(0, 3);
  join(1, 3);
  turn(2);
  EXPECT_EQ(hosts[0].launchers->missing(), "2");
  Failure absence;
  absence.message = "ranks 2 have not come";
  hosts[0].launchers->report(absence);
  hosts[0].launchers->turn(false);
  hosts.erase(0);
  turn(1);
  ASSERT_TRUE(hosts[1].launchers->failure());
  EXPECT_EQ(hosts[1].launchers->failure()->message, "ranks 2 have not come");
}

TEST_F(LaunchersTest, FinishedHostsMayLeave) {
  joinAll(3);
  hosts[1].launchers->leave();
  turn(1);
  hosts[1].launchers.reset();
  turn(2 * patience.silentPolls);
  hosts[0].launchers->leave();
  turn(1);
  hosts[0].launchers.reset();
  turn(2 * patience.silentPolls);
  EXPECT_FALSE(hosts[2].launchers->failure());
}

TEST_F(LaunchersTest, NoticesReachAllHostsIncludingLateOnes) {
  join(0, 3);
  join(1, 3);
  hosts[1].keyValues->post("nccl", "an id");
  hosts[1].keyValues->post(".own", "stays");
  turn(2);
  EXPECT_EQ(hosts[0].keyValues->find("nccl"), "an id");
  EXPECT_EQ(hosts[0].keyValues->find(".own"), std::nullopt);
  join(2, 3);
  turn(2);
  EXPECT_EQ(hosts[2].keyValues->find("nccl"), "an id");
}

/// All hosts fail with the refused host, whether it comes before or after the others.
TEST_F(LaunchersTest, ARejectedHostFailsAllHosts) {
  join(0, 4);
  join(1, 4);
  join(2, 4, "another");
  turn(2);
  for (int rank : {0, 1, 2}) {
    ASSERT_TRUE(hosts[rank].launchers->failure()) << rank;
    EXPECT_EQ(hosts[rank].launchers->failure()->rank, 2);
    EXPECT_THAT(hosts[rank].launchers->failure()->message, HasSubstr("host2 has another plan"));
  }
  EXPECT_FALSE(hosts[0].launchers->haveAllCome());
  join(3, 4);
  turn(2);
  EXPECT_TRUE(hosts[0].launchers->haveAllCome());
  ASSERT_TRUE(hosts[3].launchers->failure());
  EXPECT_THAT(hosts[3].launchers->failure()->message, HasSubstr("host2 has another plan"));
}

TEST_F(LaunchersTest, AHostRejectedLaterEndsNothing) {
  joinAll(2);
  join(2, 2);
  EXPECT_THAT(hosts[2].launchers->failure()->message, HasSubstr("host2 starts rank 2, the plan has 2"));
  turn(3, /*without=*/2);
  EXPECT_FALSE(hosts[0].launchers->failure());
  EXPECT_FALSE(hosts[1].launchers->failure());
}

TEST_F(LaunchersTest, ARequestedEndIsReportedAsSuch) {
  joinAll(2);
  Failure asked = failureOf(1, "its process ended with status 143");
  asked.endSignal = SIGTERM;
  hosts[1].launchers->report(asked);
  turn(2);
  EXPECT_EQ(hosts[0].launchers->failure()->endSignal, SIGTERM);
}

TEST(KeyValueStore, AreFewAndShort) {
  auto keyValues = std::make_unique<KeyValueStore>();
  EXPECT_THROW(keyValues->post("long", std::string(KeyValueStore::mostText + 1, 'x')), std::runtime_error);
  for (size_t i = 0; i < KeyValueStore::most; ++i)
    keyValues->post(std::to_string(i), std::string("a\0b", 3));
  EXPECT_THROW(keyValues->post("more", ""), std::runtime_error);
  EXPECT_EQ(keyValues->find("255"), std::string("a\0b", 3));
  EXPECT_EQ(keyValues->find("256"), std::nullopt);
}

TEST(ChannelAddress, IsTheAddressThatMpirunUses) {
  Environment several = {{"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_MCA_orte_local_daemon_uri", "17.1;tcp://10.9.0.2,192.168.1.4:38261;tcp6://[fd::2]:1"}};
  EXPECT_EQ(channelHost(several, "node7"), "10.9.0.2");
  several["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  EXPECT_EQ(channelHost(several, "node7"), "127.0.0.1") << "all are on this host";
  EXPECT_EQ(channelHost({{"SLURMD_NODENAME", "n3"}}, "node7"), "n3");
  EXPECT_EQ(channelHost({}, "node7"), "node7");
  EXPECT_EQ(launchedRank({{"OMPI_COMM_WORLD_RANK", "3"}}), 3);
  EXPECT_EQ(launchedRank({{"SLURM_PROCID", "5"}}), 5);
  EXPECT_EQ(launchedRank({}), 0);
}

} // namespace
} // namespace espalier::rt::launch
