// Lost and returning slots of an elastic run, and what it tells its attempts.
#include "runtime/elastic/attempt.h"
#include "runtime/elastic/members.h"

#include "runtime/status.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::rt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Places = std::vector<HostSlots>;

TEST(MembersTest, OneHostUsesItsFirstSlots) {
  Members members({{"a", 4, {}}});
  EXPECT_EQ(members.slotsFor(4), Places({{"a", {0, 1, 2, 3}}}));
  EXPECT_EQ(members.slotsFor(3), Places({{"a", {0, 1, 2}}}));
  EXPECT_EQ(members.slotsFor(5), std::nullopt);
}

/// Loses a rank so often that its slot is lost.
void loseSlot(Members &members, const std::vector<HostSlots> &places, int rank, bool isAllSlots = false) {
  members.loseRank(places, rank, isAllSlots);
  members.loseRank(places, rank, isAllSlots);
}

TEST(MembersTest, ASlotThatLosesItsRankOnceIsUsedAgain) {
  Members members({{"a", 4, {}}});
  members.loseRank(*members.slotsFor(4), 1, /*isAllSlots=*/false);
  EXPECT_EQ(members.left(), 4);
  members.loseRank(*members.slotsFor(4), 2, /*isAllSlots=*/false);
  EXPECT_EQ(members.left(), 4) << "another slot";
  members.noteSave();
  members.loseRank(*members.slotsFor(4), 1, /*isAllSlots=*/false);
  EXPECT_EQ(members.left(), 4) << "the run has saved since";
  members.loseRank(*members.slotsFor(4), 1, /*isAllSlots=*/false);
  EXPECT_EQ(members.slotsFor(3), Places({{"a", {0, 2, 3}}}));
}

TEST(MembersTest, ALostRankLosesTheSlotOnWhichItRan) {
  Members members({{"a", 4, {}}});
  loseSlot(members, *members.slotsFor(4), 1);
  EXPECT_EQ(members.left(), 3);
  EXPECT_EQ(members.all(), 4);
  EXPECT_EQ(members.slotsFor(3), Places({{"a", {0, 2, 3}}}));
  loseSlot(members, *members.slotsFor(3), 1);
  EXPECT_EQ(members.slotsFor(2), Places({{"a", {0, 3}}}));
  EXPECT_EQ(members.slotsFor(3), std::nullopt);
}

TEST(MembersTest, RanksCountThroughTheHosts) {
  Members members({{"a", 2, {}}, {"b", 2, {}}});
  loseSlot(members, *members.slotsFor(4), 3);
  EXPECT_EQ(members.slotsFor(2), Places({{"a", {0}}, {"b", {0}}}));
  EXPECT_EQ(members.slotsFor(3), std::nullopt) << "hosts take equally many ranks";
  loseSlot(members, *members.slotsFor(2), 1);
  EXPECT_EQ(members.slotsFor(2), Places({{"a", {0, 1}}}));
}

TEST(MembersTest, ALostPlaceLosesAllItsSlots) {
  Members members({{"a", 2, {}}, {"b", 2, {}}});
  loseSlot(members, *members.slotsFor(4), 0, /*isAllSlots=*/true);
  EXPECT_EQ(members.slotsFor(2), Places({{"b", {0, 1}}}));
}

TEST(MembersTest, UnknownRanksLoseNothing) {
  Members members({{"a", 2, {}}});
  members.loseRank(*members.slotsFor(2), 2, /*isAllSlots=*/false);
  members.loseRank(*members.slotsFor(2), -1, /*isAllSlots=*/false);
  EXPECT_EQ(members.left(), 2);
}

TEST(MembersTest, ALostHostComesBackWithItsSlots) {
  Members members({{"a", 2, {}}, {"b", 2, {}}});
  members.loseHost("a");
  EXPECT_THAT(members.hosts(/*areLost=*/true), ElementsAre("a"));
  EXPECT_THAT(members.hosts(/*areLost=*/false), ElementsAre("b"));
  EXPECT_EQ(members.slotsFor(2), Places({{"b", {0, 1}}}));
  members.takeHost("a");
  EXPECT_EQ(members.slotsFor(4), Places({{"a", {0, 1}}, {"b", {0, 1}}}));
}

TEST(MembersTest, ASlotReturnsAfterASave) {
  Members members({{"a", 2, {}}});
  loseSlot(members, *members.slotsFor(2), 0);
  members.takeSlots();
  EXPECT_EQ(members.left(), 1) << "nothing was saved";
  members.noteSave();
  members.takeSlots();
  EXPECT_EQ(members.left(), 2);
}

TEST(MembersTest, ASlotThatIsLostOnTrialStaysOutTwiceAsLong) {
  Members members({{"a", 2, {}}});
  members.loseRank(*members.slotsFor(2), 0, /*isAllSlots=*/false); // is on trial from here
  for (int saves : {1, 2, 4, 8}) {
    members.loseRank(*members.slotsFor(2), 0, /*isAllSlots=*/false);
    for (int save = 0; save < saves; ++save) {
      members.takeSlots();
      EXPECT_EQ(members.left(), 1) << saves;
      members.noteSave();
    }
    members.takeSlots();
    EXPECT_EQ(members.left(), 2) << saves;
  }
  members.noteSave(); // the trial is over
  loseSlot(members, *members.slotsFor(2), 0);
  EXPECT_EQ(members.left(), 1);
  members.noteSave();
  members.takeSlots();
  EXPECT_EQ(members.left(), 2);
}

/// Sets the variable of attempts for one test.
class AttemptTest : public testing::Test {
protected:
  ~AttemptTest() override { unsetenv(attemptVariable); }
  static void set(const std::string &text) { setenv(attemptVariable, text.c_str(), /*overwrite=*/1); }
};

TEST_F(AttemptTest, TellsPlanAndRestarts) {
  EXPECT_FALSE(attemptOfProcess());
  RestartRecord restart{RestartRecord::grow, 3, 4, "x.plan", "rank 2: its \"process\"\n\xff", 2, 5, 7.5};
  set(printAttempt({"x.3.plan", "hosts", "f.json", true, {restart}}));
  std::optional<Attempt> read = attemptOfProcess();
  ASSERT_TRUE(read);
  RunOptions options;
  options.load = "weights";
  options.acceptChanges = true;
  apply(*read, options);
  EXPECT_EQ(read->plan, "x.3.plan");
  EXPECT_EQ(read->hosts, "hosts");
  EXPECT_EQ(options.failureReport, "f.json");
  EXPECT_TRUE(options.resume);
  EXPECT_TRUE(options.acceptChanges);
  EXPECT_TRUE(options.load.empty());
  ASSERT_EQ(options.restarts.size(), 1u);
  EXPECT_EQ(options.restarts[0].kind, RestartRecord::grow);
  EXPECT_EQ(options.restarts[0].ranksBefore, 3);
  EXPECT_EQ(options.restarts[0].ranks, 4);
  EXPECT_EQ(options.restarts[0].number, 2);
  EXPECT_EQ(options.restarts[0].most, 5);
  EXPECT_EQ(options.restarts[0].endedAt, 7.5);
  EXPECT_THAT(options.restarts[0].reason, HasSubstr("rank 2: its \"process\"\n"));
}

TEST_F(AttemptTest, AnAttemptFromTheBeginningDoesNotResume) {
  set(printAttempt({"x.plan", "", "f.json", false, {}}));
  RunOptions options;
  options.load = "weights";
  options.acceptChanges = true; // of a run that was started with --resume
  options.failureReport = "mine.json";
  apply(*attemptOfProcess(), options);
  EXPECT_FALSE(options.resume);
  EXPECT_FALSE(options.acceptChanges);
  EXPECT_EQ(options.load, "weights");
  EXPECT_EQ(options.failureReport, "mine.json");
}

TEST_F(AttemptTest, RefusesOtherText) {
  for (const char *text : {"", "{", "{}", "[]", R"({"plan":1,"hosts":"","report":"","resume":true,"restarts":[]})",
                           R"({"plan":"x","hosts":"","report":"","resume":true,"restarts":[{}]})"}) {
    set(text);
    EXPECT_THROW(attemptOfProcess(), PlanError) << text;
  }
}

} // namespace
} // namespace espalier::rt
