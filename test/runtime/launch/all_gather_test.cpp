// Tests all-gathers of messages between ranks of several hosts, and ranks that communicate through the launchers of two
// hosts.
#include "runtime/launch/all_gather.h"

#include "runtime/checkpoint/agree.h"
#include "runtime/comm/hosts.h"
#include "runtime/launch/launchers.h"

#include <gmock/gmock.h>
#include <thread>

namespace espalier::rt::launch {
namespace {

using testing::ElementsAre;

TEST(AllGathers, AreCompleteOnceEachMemberHasContributed) {
  AllGathers allGathers;
  AllGatherName name{.group = 7, .number = 3, .queue = 1}, next{.group = 7, .number = 4, .queue = 1};
  EXPECT_FALSE(allGathers.add({name, 2, 1, "b"}, 5));
  EXPECT_FALSE(allGathers.add({next, 2, 1, "d"}, 5)) << "another round";
  std::optional<AllGathers::Whole> whole = allGathers.add({name, 2, 0, "a"}, -1);
  ASSERT_TRUE(whole);
  EXPECT_THAT(whole->gathered.messages, ElementsAre("a", "b"));
  EXPECT_THAT(whole->from, ElementsAre(-1, 5));
}

TEST(AllGathers, RefuseMembersThatContradictEachOther) {
  AllGathers allGathers;
  allGathers.add({{}, 3, 1, ""}, 0);
  EXPECT_THROW(allGathers.add({{}, 3, 1, ""}, 1), FrameError) << "the same member";
  EXPECT_THROW(allGathers.add({{}, 2, 0, ""}, 1), FrameError) << "a group of another size";
}

TEST(Words, RoundTrip) {
  Contribution contribution{{1, 2, 3}, 4, 3, std::string("a\0b", 3)};
  Contribution read = parseContribution(print(contribution));
  EXPECT_EQ(read.round, contribution.round);
  EXPECT_EQ(read.message, contribution.message);
  EXPECT_THAT(parseGathered(print(Gathered{{1, 2, 3}, {"", "abc"}})).messages, ElementsAre("", "abc"));
  std::string cut = print(Gathered{{}, {"abc"}});
  cut.pop_back();
  EXPECT_THROW(parseGathered(cut), FrameError);
  EXPECT_THROW(parseContribution(print(Contribution{{}, 2, 2, ""})), FrameError) << "no such member";
}

TEST(RankChannel, KeepsMessagesSeparateAndInOrder) {
  auto [one, other] = makeRankChannel();
  std::string large(1 << 20, 'x'); // needs more than one write
  one.send("a");
  one.send("");
  one.send(large);
  std::vector<std::string> heard;
  while (heard.size() < 3) {
    for (std::string &text : other.turn())
      heard.push_back(std::move(text));
    one.turn();
  }
  EXPECT_THAT(heard, ElementsAre("a", "", large));
}

/// Three ranks, one on the first host and two on the second, agree twice. The second time, all messages are empty.
TEST(HostsCommunicator, GathersTheWordsOfAllHosts) {
  constexpr size_t bytes = 1 << 20;
  ShmWorld here(1, bytes, 0), there(2, bytes, 1);
  std::string address;
  Launchers first([] { return Rendezvous{{"127.0.0.1", 0}, "token", {"plan", "1", {0}, "a", 1}, 3, true}; },
                  here.keyValues(), {});
  first.turn(false);
  address = *here.keyValues().find(channelKey);
  Launchers second([&] { return Rendezvous{parseEndpoint(address), "token", {"plan", "1", {1, 2}, "b", 2}, 3, false}; },
                   there.keyValues(), {});
  std::vector<RankChannel> ends;
  std::vector<std::vector<RankChannel>> launcherEnds(2);
  for (int rank = 0; rank < 3; ++rank) {
    auto [own, ranks] = makeRankChannel();
    launcherEnds[rank > 0].push_back(std::move(own));
    ends.push_back(std::move(ranks));
  }
  std::atomic<int> running = 4; // the ranks and this test
  auto carry = [&](Launchers &launchers, std::vector<RankChannel> channels) {
    launchers.serve(std::move(channels));
    while (running > 0)
      launchers.turn(false);
  };
  std::jthread one([&] { carry(first, std::move(launcherEnds[0])); });
  std::jthread two([&] { carry(second, std::move(launcherEnds[1])); });
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      auto communicator = openHosts(rank > 0 ? there : here, rank, 3, std::move(ends[rank]));
      Agreement agreement(*communicator, true, 0);
      EXPECT_THAT(agreement.tell("rank " + std::to_string(rank)), ElementsAre("rank 0", "rank 1", "rank 2"));
      EXPECT_EQ(agreement.first(rank == 1 ? "me" : ""), "me");
      EXPECT_EQ(agreement.first(""), "") << "messages of the round before are gone";
      --running;
    });
  --running;
}

/// A failure of the host stops a rank that waits for other hosts.
TEST(HostsCommunicator, StopsWithItsHost) {
  ShmWorld host(1, 1 << 20, 2);
  auto [launchers, own] = makeRankChannel();
  auto communicator = openHosts(host, 2, 4, std::move(own));
  Agreement agreement(*communicator, true, 0);
  std::jthread stop([&] { host.abort({1, 0, 0, "", "", "", "no more paper", false}); });
  EXPECT_THROW(agreement.tell(""), RankStopped);
}

} // namespace
} // namespace espalier::rt::launch
