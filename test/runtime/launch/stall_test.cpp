// The watch over progress: threads that live but do not go on, and who is to blame.
#include "runtime/launch/stall.h"

#include "runtime/launch/thread_stack.h"

#include <atomic>
#include <gmock/gmock.h>
#include <memory>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

class StallTest : public testing::Test {
protected:
  /// Polls for a number of tenths of a second. Returns whether the ranks have stalled at the end.
  bool poll(int times, bool isAsked = false) {
    for (int i = 0; i < times; ++i)
      watch.poll(ranks(), [=] { return isAsked; });
    return watch.isStalled();
  }
  std::span<RankStatus> ranks() { return {statuses.get(), 2}; }
  RankStatus &rank(int number) { return statuses[static_cast<size_t>(number)]; }

  /// A rank runs an entry.
  void begin(int number) {
    rank(number).main.thread = gettid();
    rank(number).entry = 0;
  }

  std::unique_ptr<RankStatus[]> statuses = std::make_unique<RankStatus[]>(2);
  StallWatch watch{2, {.seconds = 2.0, .endSeconds = 1}};
};

TEST_F(StallTest, EveryRankMustStandForTheWholeTime) {
  begin(0);
  begin(1);
  EXPECT_FALSE(poll(19));
  rank(1).main.move();
  EXPECT_FALSE(poll(19)) << "one rank has moved";
  EXPECT_TRUE(poll(2));
  rank(0).main.move();
  EXPECT_FALSE(poll(1));
}

TEST_F(StallTest, NoRankHasBegun) { EXPECT_FALSE(poll(100)); }

TEST_F(StallTest, ComputingInAnEntryIsNoMovement) {
  begin(0);
  for (int i = 0; i < 20; ++i) {
    volatile float value = 1;
    for (int k = 0; k < 2'000'000; ++k)
      value = value * 1.000001f;
    poll(1);
  }
  EXPECT_TRUE(poll(1)) << "a loop without end in a kernel";
}

TEST_F(StallTest, ComputingOutsideOfEntriesIsMovement) {
  rank(0).main.thread = gettid();
  for (int i = 0; i < 30; ++i) {
    volatile float value = 1;
    for (int k = 0; k < 2'000'000; ++k)
      value = value * 1.000001f;
    EXPECT_FALSE(poll(1));
  }
  rank(0).main.wait = Activity::Ranks;
  poll(20);
  EXPECT_TRUE(poll(1)) << "waiting is no movement";
}

TEST_F(StallTest, ASlowStepHasTwentyTimesItsTime) {
  StallWatch usual(2, {.seconds = std::nullopt});
  begin(0);
  rank(0).stepSeconds = 4;
  auto polled = [&](int times, bool isAsked = false) {
    for (int i = 0; i < times; ++i)
      usual.poll(ranks(), [=] { return isAsked; });
    return usual.isStalled();
  };
  EXPECT_FALSE(polled(799));
  EXPECT_TRUE(polled(2));
  rank(0).main.move();
  EXPECT_FALSE(polled(79, /*isAsked=*/true)) << "two steps after a signal";
  EXPECT_TRUE(polled(2, /*isAsked=*/true));
}

/// The first step of a GPU compiles its kernels.
TEST_F(StallTest, ADeviceHasTenMinutesForItsFirstStep) {
  StallWatch usual(2, {.seconds = std::nullopt});
  begin(0);
  rank(0).main.wait = Activity::OwnDevice;
  for (int i = 0; i < 5999; ++i)
    usual.poll(ranks(), [] { return false; });
  EXPECT_FALSE(usual.isStalled());
  usual.poll(ranks(), [] { return false; });
  EXPECT_TRUE(usual.isStalled());
}

TEST_F(StallTest, ZeroIsNever) {
  StallWatch never(2, {.seconds = 0.0});
  begin(0);
  for (int i = 0; i < 10000; ++i)
    never.poll(ranks(), [] { return true; });
  EXPECT_FALSE(never.isStalled());
}

TEST_F(StallTest, AWriterIsNamedAlthoughRanksMove) {
  begin(0);
  std::atomic<int> thread = 0;
  std::jthread writer([&](const std::stop_token &end) {
    WatchedThread watched(&rank(1).writer);
    thread = gettid();
    while (!end.stop_requested())
      pause();
  });
  while (thread == 0)
    std::this_thread::yield();
  for (int i = 0; i < 19; ++i) {
    rank(0).main.move();
    poll(1);
    EXPECT_EQ(watch.stalledWriter(), -1);
  }
  rank(0).main.move();
  poll(2);
  EXPECT_EQ(watch.stalledWriter(), 1);
  EXPECT_FALSE(watch.isStalled());
  Failure failure = writerStall(ranks(), watch, /*first=*/4, [](int, StalledRank &) {});
  EXPECT_EQ(failure.rank, 5);
  EXPECT_THAT(failure.message,
              HasSubstr("its thread that writes a checkpoint has not moved for 2.1 seconds: its stack is "));
  EXPECT_THAT(failure.message, HasSubstr("pause, "));
  EXPECT_THAT(failure.message, HasSubstr("AWriterIsNamedAlthoughRanksMove"));
  writer.request_stop();
  requestStack(rank(1).writer); // wakes it
}

TEST_F(StallTest, ARankThatDoesNotLookIsAskedForItsStack) {
  begin(0);
  rank(0).main.wait = Activity::Ranks;
  rank(1).main.thread = rank(1).main.process = 1 << 30; // no such thread
  rank(1).main.wait = Activity::Ranks;
  for (int i = 0; i < 21; ++i) {
    rank(0).main.look();
    poll(1);
  }
  ASSERT_TRUE(watch.isStalled());
  auto tell = [](int rank, StalledRank &to) {
    to.awaited = {{4, 5}, "in/3"};
    to.place.step = rank;
  };
  std::vector<StalledRank> stalled = describeStall(ranks(), watch, /*first=*/4, tell);
  ASSERT_EQ(stalled.size(), 2);
  EXPECT_EQ(stalled[0].rank, 4);
  EXPECT_EQ(stalled[0].awaited.what, "in/3");
  EXPECT_EQ(stalled[1].stack, "none, because the thread has ended");
  EXPECT_EQ(parseStalled(printStalled(stalled))[1].stack, stalled[1].stack);
  EXPECT_EQ(parseStalled(printStalled(stalled))[0].awaited.ranks, stalled[0].awaited.ranks);
  EXPECT_EQ(parseStalled(printStalled(stalled))[1].place.step, 1);
}

StalledRank waiting(int rank, std::vector<int> ranks, std::string what) {
  return {rank, 3, {std::move(ranks), std::move(what)}, ""};
}

TEST(Blame, FollowsTheChain) {
  std::vector<StalledRank> ranks = {waiting(0, {1}, "in/3"),
                                    waiting(1, {2}, "out/2"),
                                    {2, 3, {}, "fsync, main"},
                                    waiting(3, {0, 1, 2, 3}, "a message of all ranks")};
  Failure failure = blame(ranks);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.message, "it has not moved for 3.0 seconds, and others wait for it: rank 0 waits for in/3, rank 1 "
                             "waits for out/2, rank 3 waits for a message of all ranks; its stack is fsync, main");
}

/// The rank that others wait for is named, not any rank that does something else.
TEST(Blame, NamesTheRankThatIsWaitedFor) {
  EXPECT_EQ(blame(std::vector<StalledRank>{{0, 3, {}, "a"}, waiting(1, {2}, "in/0"), {2, 3, {}, "b"}}).rank, 2);
}

TEST(Blame, TwoThatWaitForEachOther) {
  Failure failure = blame(std::vector<StalledRank>{waiting(0, {0, 1}, "sum/0"), waiting(1, {0, 1}, "sum/0")});
  EXPECT_EQ(failure.message, "it waits for sum/0, and nothing has moved for 3.0 seconds: the data between the ranks do "
                             "not arrive; rank " +
                                 std::to_string(1 - failure.rank) + " waits for sum/0");
}

TEST(Blame, NamesFewOfMany) {
  std::vector<StalledRank> ranks = {{0, 3, {}, "a"}};
  for (int rank = 1; rank < 1000; ++rank)
    ranks.push_back(waiting(rank, {0}, "in/0"));
  EXPECT_THAT(blame(ranks).message, HasSubstr("rank 8 waits for in/0 and 991 others wait; its stack is a"));
}

} // namespace
} // namespace espalier::rt
