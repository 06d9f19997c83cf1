// Tests which ranks are named as slow, after how many windows, and when they have recovered.
#include "runtime/train/slow_ranks.h"

#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using testing::ElementsAre;

std::vector<int> ranksOf(const std::vector<SlowRank> &slow) {
  std::vector<int> ranks;
  for (const SlowRank &one : slow)
    ranks.push_back(one.rank);
  return ranks;
}

/// Two stages of three ranks on two hosts. The second stage has twice the work.
std::vector<RankSite> sites() { return {{0, "a"}, {0, "a"}, {0, "b"}, {1, "a"}, {1, "b"}, {1, "b"}}; }

TEST(SlowRanks, NamesARankAfterThreeWindows) {
  SlowRanks ranks(sites());
  std::vector<double> times = {1, 1.3, 1, 2, 2.1, 2};
  for (int window = 0; window < 2; ++window) {
    ranks.add(times);
    EXPECT_TRUE(ranks.slow().empty());
  }
  ranks.add(times);
  ASSERT_THAT(ranksOf(ranks.slow()), ElementsAre(1));
  EXPECT_THAT(ranksOf(ranks.news()), ElementsAre(1));
  EXPECT_DOUBLE_EQ(ranks.slow()[0].ratio, 1.3);
  EXPECT_EQ(ranks.slow()[0].median, 1);
  EXPECT_FALSE(ranks.slow()[0].isWholeHost);
  EXPECT_EQ(describeSlow(ranks.slow()[0], "a", 10),
            "rank 1 on a is slow: it computes 1.3 s a step, the median rank of its stage 1 s (+30 %), in 3 windows of "
            "10 steps");
  ranks.add(times);
  EXPECT_THAT(ranksOf(ranks.slow()), ElementsAre(1));
  EXPECT_TRUE(ranks.news().empty()); // is named once
}

TEST(SlowRanks, ForgetsARankThatRecovers) {
  SlowRanks ranks(sites());
  std::vector<double> slow = {1, 1, 1, 2, 2, 3}, even = {1, 1, 1, 2, 2, 2.2};
  for (const std::vector<double> &times : {slow, slow, even, slow, slow})
    ranks.add(times);
  EXPECT_TRUE(ranks.slow().empty()); // never three windows in a row
  ranks.add(slow);
  EXPECT_THAT(ranksOf(ranks.slow()), ElementsAre(5));
  ranks.add(even);
  EXPECT_TRUE(ranks.slow().empty());
  EXPECT_THAT(ranks.recovered(), ElementsAre(5));
  ranks.add(even);
  EXPECT_TRUE(ranks.recovered().empty());
}

TEST(SlowRanks, NamesTheSlowestFirstAndAWholeHost) {
  SlowRanks ranks({{0, "a"}, {0, "a"}, {0, "a"}, {0, "b"}, {0, "b"}});
  std::vector<double> times = {1, 1, 1, 1.2, 1.5};
  for (int window = 0; window < SlowRanks::windows; ++window)
    ranks.add(times);
  ASSERT_THAT(ranksOf(ranks.slow()), ElementsAre(4, 3));
  EXPECT_TRUE(ranks.slow()[0].isWholeHost && ranks.slow()[1].isWholeHost);
  EXPECT_THAT(describeSlow(ranks.slow()[0], "b", 5), testing::EndsWith("; all ranks of b are slow"));
}

TEST(SlowRanks, HasNoOpinionOfASingleRank) {
  SlowRanks ranks({{0, "a"}, {1, "a"}});
  for (int window = 0; window < SlowRanks::windows; ++window)
    ranks.add(std::vector<double>{1, 5});
  EXPECT_TRUE(ranks.slow().empty());
}

// With two ranks, the slower rank is compared with the faster one.
TEST(SlowRanks, ComparesTwoRanks) {
  SlowRanks ranks({{0, "a"}, {0, "a"}});
  for (int window = 0; window < SlowRanks::windows; ++window)
    ranks.add(std::vector<double>{1.2, 1});
  EXPECT_THAT(ranksOf(ranks.slow()), ElementsAre(0));
}

} // namespace
} // namespace espalier::rt
