// Tests which ranks and links are named as slow, and which pairs are measured.
#include "tools/machine/preflight.h"

#include "runtime/comm/local.h"

#include <gmock/gmock.h>
#include <thread>

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Two hosts of two ranks. Links within a host are ten times as fast as links between hosts.
Preflight evenRanks() {
  Preflight preflight;
  for (const char *host : {"a", "a", "b", "b"}) {
    MeasuredMachine machine;
    machine.processor = "P";
    machine.memoryBytes = 64;
    machine.f32Flops = 100;
    machine.memoryBytesPerSecond = 10;
    preflight.ranks.push_back({host, machine});
  }
  for (auto [first, second] : measuredPairs(4))
    preflight.pairs.push_back({first, second, first / 2 == second / 2 ? 50.0 : 5.0, 0.5});
  return preflight;
}

TEST(Preflight, MeasuresLogarithmicallyManyPairs) {
  EXPECT_THAT(measuredPairs(1), IsEmpty());
  EXPECT_THAT(measuredPairs(2), ElementsAre(std::pair(0, 1)));
  EXPECT_EQ(measuredPairs(4).size(), 6U);            // all pairs
  EXPECT_EQ(measuredPairs(64).size(), 64U * 6 - 32); // a pair at distance 32 has one direction
}

TEST(Preflight, NamesNoneOfEqualRanks) { EXPECT_THAT(outliersOf(evenRanks()), IsEmpty()); }

TEST(Preflight, NamesSlowRanksAndLinks) {
  Preflight preflight = evenRanks();
  preflight.ranks[2].machine.f32Flops = 80;
  preflight.ranks[3].machine.memoryBytesPerSecond = 8.8; // within 15 %
  EXPECT_THAT(outliersOf(preflight),
              ElementsAre("rank 2 on b is slow: matrix product 80 FLOP/s, the median 100 (-20 %)"));
  preflight = evenRanks();
  preflight.pairs[1].bytesPerSecond = 3; // between hosts
  ASSERT_TRUE(preflight.isBetweenHosts(preflight.pairs[1]));
  EXPECT_THAT(outliersOf(preflight), ElementsAre("the link between rank 0 on a and rank 2 on b is slow: 3 B/s, the "
                                                 "median 5 (-40 %)"));
}

TEST(Preflight, WritesTheMedians) {
  Preflight preflight = evenRanks();
  preflight.ranks[0].machine.f32Flops = 10;
  MeasuredMachine machine = typicalMachine(preflight);
  EXPECT_EQ(machine.hosts, 2);
  EXPECT_EQ(machine.ranks, 2);
  EXPECT_EQ(machine.f32Flops, 100);
  EXPECT_EQ(machine.memoryBytes, 32);
  EXPECT_EQ(machine.linkBytesPerSecond, 50);
  EXPECT_EQ(machine.networkBytesPerSecond, 5);
  std::string text = clusterYaml("two", machine);
  EXPECT_THAT(text, HasSubstr("# Measured by `espalier preflight` on P"));
  EXPECT_THAT(text, HasSubstr("hosts: 2\ndevices_per_host: 2\n"));
  EXPECT_THAT(text, HasSubstr("network: {bandwidth: 5, latency: 0.5}"));
}

TEST(Preflight, MeasuresThreads) {
  constexpr int ranks = 3;
  rt::LocalWorld world(ranks);
  std::vector<Preflight> results(ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      results[static_cast<size_t>(rank)] = measureRanks(*world.communicator(rank), rank == 0, /*seconds=*/0.0);
    });
  threads.clear(); // joins
  for (const Preflight &result : results) {
    ASSERT_EQ(result.ranks.size(), 3U);
    ASSERT_EQ(result.pairs.size(), 3U);
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_GT(result.ranks[rank].machine.f32Flops, 1e6);
      EXPECT_EQ(result.ranks[rank].machine.f32Flops, results[0].ranks[rank].machine.f32Flops); // all know the same
    }
    for (const PairFigures &pair : result.pairs)
      EXPECT_GT(pair.bytesPerSecond, 1e3);
  }
}

} // namespace
} // namespace espalier
