// The knapsack of recompute against all choices, and its bounds where it may not look at all.
#include "planner/search/recompute_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

using namespace espalier::planner;

namespace {

struct Least {
  double seconds = std::numeric_limits<double>::infinity(), bytes = seconds;
};

// Least seconds repeated of what fits, and least bytes of all, by trying everything.
Least tryAll(const std::vector<RecomputeItem> &items, double floor, double limit) {
  Least least;
  std::function<void(size_t, double, double, double)> choose = [&](size_t i, double saved, double peak,
                                                                   double seconds) {
    if (i == items.size()) {
      least.bytes = std::min(least.bytes, saved + peak);
      if (saved + peak <= limit)
        least.seconds = std::min(least.seconds, seconds);
      return;
    }
    const RecomputeItem &item = items[i];
    for (int full = 0; full <= item.layers; ++full)
      for (int selective = 0; full + selective <= item.layers; ++selective) {
        const int counts[] = {item.layers - full - selective, selective, full};
        double bytes = saved, most = peak, time = seconds;
        for (int c = 0; c < 3; ++c)
          if (counts[c] > 0) {
            bytes += counts[c] * item.savedBytes[c];
            time += counts[c] * item.repeatSeconds[c];
            most = std::max(most, item.peakBytes[c]);
          }
        choose(i + 1, bytes, most, time);
      }
  };
  choose(0, 0, floor, 0);
  return least;
}

// Mostly, but not always, who repeats more keeps less.
RecomputeItem randomItem(std::mt19937 &random, int mostLayers) {
  std::uniform_real_distribution<double> number(0, 1);
  RecomputeItem item;
  item.layers = 1 + static_cast<int>(random() % mostLayers);
  bool ordered = random() % 4;
  for (int c = 0; c < 3; ++c) {
    item.savedBytes[c] = ordered ? (3 - c) * (0.2 + number(random)) : number(random);
    item.repeatSeconds[c] = ordered ? c * (0.2 + number(random)) : number(random);
    item.peakBytes[c] = 3 * number(random);
  }
  return item;
}

std::vector<RecomputeItem> randomItems(std::mt19937 &random, int kinds, int mostLayers) {
  std::vector<RecomputeItem> items;
  for (int i = 0; i < kinds; ++i)
    items.push_back(randomItem(random, mostLayers));
  return items;
}

// Between the least and the most that any choice needs.
double randomLimit(std::mt19937 &random, const std::vector<RecomputeItem> &items) {
  double most = 3;
  for (const RecomputeItem &item : items)
    most += item.layers * *std::max_element(item.savedBytes.begin(), item.savedBytes.end());
  return most * std::uniform_real_distribution<double>(0.1, 1)(random);
}

// What a choice says of itself is what its counts add up to.
void checkSums(const std::vector<RecomputeItem> &items, const RecomputeChoice &choice, double floor) {
  double saved = 0, seconds = 0, peak = floor;
  for (size_t i = 0; i < items.size(); ++i) {
    int layers = 0;
    for (int c = 0; c < 3; ++c) {
      int count = choice.layers[i][c];
      EXPECT_GE(count, 0);
      layers += count;
      saved += count * items[i].savedBytes[c];
      seconds += count * items[i].repeatSeconds[c];
      if (count > 0)
        peak = std::max(peak, items[i].peakBytes[c]);
    }
    EXPECT_EQ(layers, items[i].layers);
  }
  EXPECT_NEAR(choice.savedBytes, saved, 1e-9);
  EXPECT_NEAR(choice.repeatSeconds, seconds, 1e-9);
  EXPECT_NEAR(choice.peakBytes, peak, 1e-9);
}

} // namespace

TEST(RecomputeChoice, IsThatOfAllChoices) {
  std::mt19937 random(3);
  int fitting = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::vector<RecomputeItem> items = randomItems(random, 1 + trial % 4, trial % 4 == 0 ? 20 : trial % 4 == 3 ? 2 : 5);
    double floor = trial % 3, limit = randomLimit(random, items);
    Least least = tryAll(items, floor, limit);
    RecomputeChoice choice = chooseRecompute(items, floor, limit, 1'000'000);
    ASSERT_EQ(choice.fits, least.bytes <= limit) << trial;
    checkSums(items, choice, floor);
    if (!choice.fits) {
      EXPECT_NEAR(choice.savedBytes + choice.peakBytes, least.bytes, 1e-9) << trial;
      continue;
    }
    ++fitting;
    EXPECT_LE(choice.savedBytes + choice.peakBytes, limit);
    EXPECT_NEAR(choice.repeatSeconds, least.seconds, 1e-9) << trial;
    EXPECT_NEAR(choice.leastRepeatSeconds, least.seconds, 1e-9) << trial;
  }
  EXPECT_GT(fitting, 1000);
}

// With next to no budget there is a choice that fits and a bound below the best; with many kinds peaks are not told
// apart, too.
TEST(RecomputeChoice, BoundsHoldWhereItMayNotLookAtAll) {
  std::mt19937 random(5);
  int gaps = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    bool many = trial % 10 == 0;
    std::vector<RecomputeItem> items = many ? randomItems(random, 200, 1) : randomItems(random, 1 + trial % 4, 4);
    double limit = randomLimit(random, items);
    RecomputeChoice quick = chooseRecompute(items, 0, limit, 5), slow = chooseRecompute(items, 0, limit, 20'000);
    ASSERT_EQ(quick.fits, slow.fits);
    if (!quick.fits)
      continue;
    checkSums(items, quick, 0);
    EXPECT_LE(quick.savedBytes + quick.peakBytes, limit);
    EXPECT_LE(quick.leastRepeatSeconds, slow.repeatSeconds + 1e-9);
    EXPECT_LE(slow.repeatSeconds, quick.repeatSeconds + 1e-9);
    EXPECT_LE(slow.leastRepeatSeconds, slow.repeatSeconds);
    gaps += quick.leastRepeatSeconds < quick.repeatSeconds - 1e-9;
    if (!many)
      EXPECT_LE(quick.leastRepeatSeconds, tryAll(items, 0, limit).seconds + 1e-9);
  }
  EXPECT_GT(gaps, 100);
}

// 96 layers of which some must repeat: as few full and as many selective as fit.
TEST(RecomputeChoice, OfOneKindMixesClasses) {
  RecomputeItem item{96, {10, 6, 1}, {0, 1, 4}, {0, 0, 0}};
  RecomputeChoice choice = chooseRecompute(std::vector{item}, 0, 96 * 6 - 8, 1000);
  ASSERT_TRUE(choice.fits);
  EXPECT_EQ(choice.layers[0], (std::array<int, 3>{0, 94, 2}));
  EXPECT_EQ(choice.repeatSeconds, choice.leastRepeatSeconds);
}
