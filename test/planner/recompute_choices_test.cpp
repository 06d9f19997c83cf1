// Recompute choices of a stage: every class for each layer, checked by hand, and very many kinds of layers.
#include "planner/search/recompute_choices.h"

#include "planner/model/stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

using namespace espalier::planner;

namespace {

// Returns layers of different kinds, each of which takes less in one respect and more in another.
CostTable distinctKinds(std::mt19937 &random, int layers) {
  auto between = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  CostTable table;
  for (int layer = 0; layer < layers; ++layer) {
    SegmentCost cost;
    cost.forward.compute = between(1, 2);
    cost.backward.compute = between(2, 4);
    double kept = 1;
    for (int i = 0; i < 3; ++i, kept *= between(0.3, 0.7)) {
      cost.savedBytes[i] = kept * between(4, 8);
      cost.savedBufferBytes[i] = 4 * cost.savedBytes[i];
      cost.forwardTransfer[i] = kept * between(0.1, 1);
      cost.recompute[i].compute = i * between(0.2, 0.8);
      cost.backwardPeakBytes[i] = between(1, 9);
    }
    table.layerKinds.push_back(layer);
    table.kinds.push_back(cost);
  }
  return table;
}

// Returns the table without offloading: no transfers.
CostTable onDevice(CostTable table) {
  for (SegmentCost &cost : table.kinds)
    cost.forwardTransfer = {};
  return table;
}

StageRoom roomFor(double bytes, double hostBytes) {
  StageRoom room;
  room.inFlight = {{3}};
  room.ends = {2};
  room.bytes = bytes;
  room.hostBytes = hostBytes;
  room.areActivationsOffloaded = true;
  return room;
}

struct Taken {
  double forward = 0, backward = 0, kept = 0, peak = 0, buffer = 0;
};

Taken taken(const CostTable &table, const std::vector<Recompute> &classes) {
  Taken sum;
  for (size_t layer = 0; layer < classes.size(); ++layer) {
    const SegmentCost &cost = table.kinds[layer];
    ChunkSeconds seconds = segmentSeconds(cost, classes[layer]);
    sum.forward += seconds.forward;
    sum.backward += seconds.backward;
    sum.kept += cost.savedBytes[classes[layer]];
    sum.peak = std::max(sum.peak, peakBytes(cost, classes[layer]));
    sum.buffer = std::max(sum.buffer, cost.savedBufferBytes[classes[layer]]);
  }
  return sum;
}

// Three micro-batches are in flight, and their inputs take 6 bytes each on the device.
bool fits(const StageRoom &room, const Taken &sum) {
  return 6 + sum.peak + std::min(3 * sum.kept, sum.buffer) <= room.bytes && 3 * sum.kept <= room.hostBytes;
}

std::vector<Recompute> classesOf(const RecomputeChoice &choice) {
  std::vector<Recompute> classes;
  for (const RecomputedLayers &recomputed : choice.recomputed) // of one layer each
    classes.push_back(recomputed.full        ? Recompute::Full
                      : recomputed.selective ? Recompute::Selective
                                             : Recompute::None);
  return classes;
}

// The layers of one chunk.
std::vector<LikeLayers> kindsOf(const CostTable &table) {
  LayerRange all{0, static_cast<int>(table.layerKinds.size())};
  return layersByKind(table, {&all, 1});
}

} // namespace

// Every choice that fits is dominated by a choice in the list. Each choice in the list fits and is not dominated.
TEST(RecomputeChoices, AreAllUndominatedChoices) {
  std::mt19937 random(7);
  int infeasible = 0, several = 0;
  for (int trial = 0; trial < 200; ++trial) {
    int layers = 1 + trial % 6;
    CostTable table = distinctKinds(random, layers);
    StageRoom room = roomFor(20 + random() % 30, 4 * layers + random() % (12 * layers));
    RecomputeChoices choices = chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/false);
    RecomputeChoices one = chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/true);
    ASSERT_TRUE(choices.isComplete && one.isComplete);
    ASSERT_FALSE(choices.list.empty());
    std::vector<Recompute> classes(layers);
    bool isAny = false;
    double fastest = std::numeric_limits<double>::infinity();
    for (int code = 0, all = static_cast<int>(std::pow(3, layers)); code < all; ++code) {
      for (int layer = 0, rest = code; layer < layers; ++layer, rest /= 3)
        classes[layer] = kRecomputes[rest % 3];
      Taken sum = taken(table, classes);
      if (!fits(room, sum))
        continue;
      isAny = true;
      fastest = std::min(fastest, sum.forward + sum.backward);
      EXPECT_TRUE(std::ranges::any_of(choices.list, [&](const RecomputeChoice &choice) {
        return choice.seconds[0].forward <= sum.forward + 1e-9 && choice.seconds[0].backward <= sum.backward + 1e-9;
      })) << trial;
    }
    ASSERT_EQ(choices.fits, isAny) << trial;
    infeasible += !isAny;
    several += choices.list.size() > 1;
    for (const RecomputeChoice &choice : choices.list) {
      Taken sum = taken(table, classesOf(choice));
      EXPECT_EQ(fits(room, sum), isAny) << trial;
      EXPECT_NEAR(choice.seconds[0].forward, sum.forward, 1e-9);
      EXPECT_NEAR(choice.seconds[0].backward, sum.backward, 1e-9);
    }
    if (isAny) {
      EXPECT_NEAR(choices.list[0].seconds[0].total(), fastest, 1e-9) << trial;
      EXPECT_NEAR(one.list[0].seconds[0].total(), fastest, 1e-9) << trial;
    }
  }
  EXPECT_GT(infeasible, 20);
  EXPECT_GT(several, 60);
}

// For values on the device only the fastest choice counts: the best over all numbers of layers in each class.
TEST(RecomputeChoices, TheFastestOnTheDeviceIsTheBestOverAllNumbers) {
  std::mt19937 random(5);
  int fitting = 0, mixed = 0;
  for (int trial = 0; trial < 600; ++trial) {
    int kinds = 1 + trial % 4;
    CostTable table = onDevice(distinctKinds(random, kinds));
    std::vector<int> counts;
    table.layerKinds.clear();
    for (int kind = 0; kind < kinds; ++kind) {
      counts.push_back(1 + static_cast<int>(random() % (kinds == 4 ? 3 : 5)));
      table.layerKinds.insert(table.layerKinds.end(), counts.back(), kind);
    }
    auto layers = static_cast<int>(table.layerKinds.size());
    StageRoom room = roomFor(15 + 3 * layers * std::uniform_real_distribution<double>(0.5, 7)(random), 1);
    room.areActivationsOffloaded = false;
    double fastest = std::numeric_limits<double>::infinity();
    std::vector<RecomputedLayers> recomputed;
    std::function<void(Taken)> choose = [&](Taken sum) {
      if (recomputed.size() == counts.size()) {
        if (6 + sum.peak + 3 * sum.kept <= room.bytes)
          fastest = std::min(fastest, sum.forward + sum.backward);
        return;
      }
      int count = counts[recomputed.size()];
      const SegmentCost &cost = table.kinds[recomputed.size()];
      for (int full = 0; full <= count; ++full)
        for (int selective = 0; full + selective <= count; ++selective) {
          Taken with = sum;
          const PerRecompute<int> some = {count - full - selective, selective, full};
          for (Recompute i : kRecomputes) {
            with.forward += some[i] * segmentSeconds(cost, i).forward;
            with.backward += some[i] * segmentSeconds(cost, i).backward;
            with.kept += some[i] * cost.savedBytes[i];
            with.peak = std::max(with.peak, some[i] > 0 ? peakBytes(cost, i) : 0);
          }
          recomputed.push_back({full, selective});
          choose(with);
          recomputed.pop_back();
        }
    };
    choose({});
    RecomputeChoices choices = chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/true);
    ASSERT_EQ(choices.fits, fastest < std::numeric_limits<double>::infinity()) << trial;
    EXPECT_TRUE(choices.isComplete);
    if (!choices.fits)
      continue;
    ++fitting;
    const RecomputeChoice &found = choices.list.at(0);
    EXPECT_NEAR(found.seconds[0].total(), fastest, 1e-9) << trial;
    mixed += std::ranges::any_of(found.recomputed, [](const RecomputedLayers &r) { return r.full && r.selective; });
  }
  EXPECT_GT(fitting, 300);
  EXPECT_GT(mixed, 20);
}

// Forty kinds: the bound leaves so few choices that the fastest is found, and its time is at least the bound.
TEST(RecomputeChoices, TheFastestOfManyKindsIsProved) {
  std::mt19937 random(13);
  for (int trial = 0; trial < 20; ++trial) {
    CostTable table = onDevice(distinctKinds(random, 40));
    StageRoom room = roomFor(15 + 3 * 40 * std::uniform_real_distribution<double>(1.5, 5)(random), 1);
    room.areActivationsOffloaded = false;
    RecomputeChoices choices = chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/true);
    ASSERT_TRUE(choices.fits);
    EXPECT_TRUE(choices.isComplete);
    Taken sum = taken(table, classesOf(choices.list.at(0)));
    EXPECT_LE(6 + sum.peak + 3 * sum.kept, room.bytes);
    for (int layer = 0; layer < 40; ++layer) // no change of one layer's class is faster and fits
      for (Recompute kept : kRecomputes) {
        std::vector<Recompute> classes = classesOf(choices.list[0]);
        classes[layer] = kept;
        Taken other = taken(table, classes);
        if (6 + other.peak + 3 * other.kept <= room.bytes)
          EXPECT_GE(other.forward + other.backward, sum.forward + sum.backward - 1e-9) << trial;
      }
  }
}

// If nothing fits, the choice with the smallest share of memory.
TEST(RecomputeChoices, NeedLeastWhenNothingFits) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 50; ++trial) {
    int layers = 1 + trial % 5;
    CostTable table = distinctKinds(random, layers);
    StageRoom room = roomFor(1, 1);
    RecomputeChoices choices = chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/trial % 2);
    ASSERT_FALSE(choices.fits);
    auto share = [&](const std::vector<Recompute> &classes) {
      Taken sum = taken(table, classes);
      return std::max(6 + sum.peak + std::min(3 * sum.kept, sum.buffer), 3 * sum.kept);
    };
    double least = share(classesOf(choices.list.at(0)));
    std::vector<Recompute> classes(layers);
    for (int code = 0, all = static_cast<int>(std::pow(3, layers)); code < all; ++code) {
      for (int layer = 0, rest = code; layer < layers; ++layer, rest /= 3)
        classes[layer] = kRecomputes[rest % 3];
      EXPECT_GE(share(classes), least * (1 - 1e-9)) << trial;
    }
  }
}

// Optimizer state alone may exceed host memory, whatever layers keep on the device.
TEST(RecomputeChoices, DoNotFitIfHostMemoryIsTooSmallForAny) {
  std::mt19937 random(10);
  CostTable table = distinctKinds(random, 3);
  StageRoom room = roomFor(1000, 8);
  room.areActivationsOffloaded = false;
  room.fixedHostBytes = 8;
  EXPECT_TRUE(chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/true).fits);
  room.fixedHostBytes = 8.5;
  EXPECT_FALSE(chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/true).fits);
  EXPECT_FALSE(chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/false).fits);
}

// With very many kinds some choices are dropped, and the result reports this. The others fit, and one is at least as
// fast as any single class for all layers.
TEST(RecomputeChoices, AreBoundedForVeryManyKinds) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 20; ++trial) {
    int layers = 40 + trial;
    CostTable table = distinctKinds(random, layers);
    StageRoom room = roomFor(60, 3 * layers * std::uniform_real_distribution<double>(2, 7)(random));
    RecomputeChoices choices = chooseRecompute(table, kindsOf(table), room, /*onlyFastest=*/false);
    ASSERT_TRUE(choices.fits);
    EXPECT_FALSE(choices.isComplete);
    EXPECT_LT(choices.list.size(), 8192u);
    for (const RecomputeChoice &choice : choices.list)
      EXPECT_TRUE(fits(room, taken(table, classesOf(choice))));
    for (Recompute kept : kRecomputes) {
      Taken sum = taken(table, std::vector<Recompute>(layers, kept));
      if (fits(room, sum))
        EXPECT_LE(choices.list[0].seconds[0].total(), sum.forward + sum.backward);
    }
  }
}

// For a thousand equal layers on several chunks only some numbers are tried, and the result reports this. The found
// choice fits and is as fast as any within one step of the tried numbers.
TEST(RecomputeChoices, AreBoundedForVeryManyLayers) {
  std::mt19937 random(12);
  const int layers = 1000, chunks = 8;
  CostTable table = onDevice(distinctKinds(random, 1));
  LikeLayers like{0, {}};
  for (int layer = 0; layer < layers; ++layer)
    like.chunks.push_back(layer % chunks);
  StageRoom room;
  room.inFlight = {std::vector<int>(chunks, 2)};
  room.ends.assign(chunks, 0);
  room.bytes = 2 * layers * table.kinds[0].savedBytes[Recompute::None] * 0.6;
  RecomputeChoices choices = chooseRecompute(table, {like}, room, /*onlyFastest=*/true);
  ASSERT_TRUE(choices.fits);
  EXPECT_FALSE(choices.isComplete);
  EXPECT_LT(choices.visits, 128 * 12 * 2 * chunks * 2); // halvings of 1,000, for each of 128 numbers
  auto total = [&](int full, int selective) {
    ChunkSeconds seconds;
    seconds.add(segmentSeconds(table.kinds[0], Recompute::Full), full);
    seconds.add(segmentSeconds(table.kinds[0], Recompute::Selective), selective);
    seconds.add(segmentSeconds(table.kinds[0], Recompute::None), layers - full - selective);
    return seconds.total();
  };
  double best = std::numeric_limits<double>::infinity();
  for (int full = 0; full <= layers; ++full)
    for (int selective = 0; full + selective <= layers; ++selective) {
      PerRecompute<int> counts = {layers - full - selective, selective, full};
      double bytes = 0, peak = 0;
      for (Recompute kept : kRecomputes) {
        bytes += 2 * counts[kept] * table.kinds[0].savedBytes[kept];
        peak = counts[kept] > 0 ? std::max(peak, peakBytes(table.kinds[0], kept)) : peak;
      }
      if (bytes + peak <= room.bytes)
        best = std::min(best, total(full, selective));
    }
  const RecomputedLayers &found = choices.list.at(0).recomputed.at(0);
  EXPECT_LE(total(found.full, found.selective), best * 1.005);
}
