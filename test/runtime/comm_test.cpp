// The conformance suite of communicators, over every back end. A back end is a way to run N ranks
// at once.
#include "runtime/comm/comm.h"
#include "runtime/comm/local.h"

#include "runtime/kernels/dtype.h"

#include <array>
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <random>
#include <thread>

namespace espalier::rt {
namespace {

using Rank = std::function<void(Communicator &)>;

struct BackEnd {
  const char *name;
  /// Runs `rank` on each of `ranks` ranks and returns the first failure that a rank reported.
  std::function<std::optional<Failure>(int ranks, const Rank &rank)> run;
};

std::optional<Failure> runThreads(int ranks, const Rank &rank) {
  LocalWorld world(ranks);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < ranks; ++i)
      threads.emplace_back([&, i] { rank(*world.communicator(i)); });
  }
  return world.failure();
}

class Comm : public testing::TestWithParam<BackEnd> {
protected:
  void onRanks(int ranks, const Rank &rank) {
    std::optional<Failure> failure = GetParam().run(ranks, rank);
    EXPECT_FALSE(failure) << failure->message;
  }
};

std::vector<int> all(int ranks) {
  std::vector<int> members(ranks);
  for (int i = 0; i < ranks; ++i)
    members[i] = i;
  return members;
}

/// Value `i` of rank `rank`: sums of these depend on the order of additions.
float valueOf(int rank, int64_t i) { return std::sin(1.0f + rank * 977 + i) * std::exp2(float(i % 19)); }

void collect(Communicator &comm, uint32_t group, const CollectiveShape &shape, void *from, void *to) {
  Ticket ticket = comm.startCollective(group, shape, &from, &to);
  comm.wait(ticket, 100);
}

constexpr int64_t sizes[] = {1, 2, 3, 7, 1024, 1031, 5000};

TEST_P(Comm, AllReduceAddsInRankOrder) {
  for (int ranks : {1, 2, 3, 8})
    onRanks(ranks, [&](Communicator &comm) {
      uint32_t group = comm.joinGroup(all(ranks));
      for (int64_t n : sizes) {
        std::vector<float> values(n);
        for (int64_t i = 0; i < n; ++i)
          values[i] = valueOf(comm.rank(), i);
        CollectiveShape shape{pb::Collective::ALL_REDUCE, pb::Collective::SUM, pb::F32, {n}};
        collect(comm, group, shape, values.data(), values.data());
        for (int64_t i = 0; i < n; ++i) {
          float sum = valueOf(0, i);
          for (int rank = 1; rank < ranks; ++rank)
            sum += valueOf(rank, i);
          ASSERT_EQ(values[i], sum) << ranks << " ranks, element " << i << " of " << n;
        }
      }
    });
}

TEST_P(Comm, AllReduceTakesTheMaximum) {
  onRanks(3, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(all(3));
    float from[] = {float(comm.rank()), -float(comm.rank()), comm.rank() == 1 ? NAN : 1.0f};
    float to[3];
    CollectiveShape shape{pb::Collective::ALL_REDUCE, pb::Collective::MAX, pb::F32, {3}};
    collect(comm, group, shape, from, to);
    EXPECT_EQ(to[0], 2);
    EXPECT_EQ(to[1], 0);
    EXPECT_TRUE(std::isnan(to[2]));
  });
}

/// 1 + 2^-9 + 2^-9: adding in bf16 would lose both small values, adding in f32 and rounding once
/// keeps them.
TEST_P(Comm, HalfPrecisionRoundsOnce) {
  onRanks(3, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(all(3));
    uint16_t value = floatToBf16(comm.rank() == 0 ? 1.0f : 0x1p-8f);
    CollectiveShape shape{pb::Collective::ALL_REDUCE, pb::Collective::SUM, pb::BF16, {1}};
    collect(comm, group, shape, &value, &value);
    EXPECT_EQ(bf16ToFloat(value), 1.0f + 0x1p-7f);
    value = floatToF16(comm.rank() == 0 ? 1.0f : 0x1p-11f);
    shape.type = pb::F16;
    collect(comm, group, shape, &value, &value);
    EXPECT_EQ(f16ToFloat(value), 1.0f + 0x1p-10f);
  });
}

TEST_P(Comm, ReduceScatterAndGatherUseShortLastShares) {
  for (int ranks : {1, 2, 3, 8})
    onRanks(ranks, [&](Communicator &comm) {
      uint32_t group = comm.joinGroup(all(ranks));
      for (int64_t n : sizes) {
        std::vector<float> values(n), gathered(n, -1);
        for (int64_t i = 0; i < n; ++i)
          values[i] = comm.rank() + 1 + i;
        Share share = shareOf(n, ranks, comm.rank());
        std::vector<float> mine(share.size());
        CollectiveShape scatter{pb::Collective::REDUCE_SCATTER, pb::Collective::SUM, pb::F32, {n}};
        collect(comm, group, scatter, values.data(), mine.data());
        CollectiveShape gather{pb::Collective::ALL_GATHER, pb::Collective::SUM, pb::F32, {n}};
        collect(comm, group, gather, mine.data(), gathered.data());
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(gathered[i], ranks * (ranks + 1) / 2.0f + ranks * i) << ranks << ' ' << n;
      }
    });
}

TEST_P(Comm, SharesMayLieInPlace) {
  onRanks(4, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(all(4));
    int64_t n = 10;
    std::vector<float> values(n, 1.0f + comm.rank());
    float *mine = values.data() + shareOf(n, 4, comm.rank()).begin;
    CollectiveShape shape{pb::Collective::REDUCE_SCATTER, pb::Collective::SUM, pb::F32, {n}};
    collect(comm, group, shape, values.data(), mine);
    shape.kind = pb::Collective::ALL_GATHER;
    collect(comm, group, shape, mine, values.data());
    EXPECT_THAT(values, testing::Each(10.0f));
  });
}

TEST_P(Comm, BroadcastSendsFromTheFirstMember) {
  onRanks(5, [&](Communicator &comm) {
    if (comm.rank() == 0 || comm.rank() == 3)
      return;
    uint32_t group = comm.joinGroup(std::vector<int>{1, 2, 4});
    std::vector<int32_t> values(33, comm.rank());
    CollectiveShape shape{pb::Collective::BROADCAST, pb::Collective::SUM, pb::I32, {33}};
    collect(comm, group, shape, values.data(), values.data());
    EXPECT_THAT(values, testing::Each(1));
  });
}

TEST_P(Comm, BuffersOfOneCollectiveMayDiffer) {
  onRanks(3, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(all(3));
    std::vector<float> a(5, 1), b(700, 2), c(1, 3);
    CollectiveShape shape{pb::Collective::ALL_REDUCE, pb::Collective::SUM, pb::F32, {5, 700, 1}};
    void *places[] = {a.data(), b.data(), c.data()};
    Ticket ticket = comm.startCollective(group, shape, places, places);
    comm.wait(ticket, 100);
    EXPECT_THAT(a, testing::Each(3.0f));
    EXPECT_THAT(b, testing::Each(6.0f));
    EXPECT_THAT(c, testing::Each(9.0f));
  });
}

/// More operations than a group keeps at once, several in flight, overlapping groups, unequal
/// speeds.
TEST_P(Comm, ManyRoundsInFlight) {
  onRanks(4, [&](Communicator &comm) {
    uint32_t everybody = comm.joinGroup(all(4));
    int pair = comm.rank() / 2;
    uint32_t two = comm.joinGroup(std::vector<int>{2 * pair, 2 * pair + 1});
    CollectiveShape shape{pb::Collective::ALL_REDUCE, pb::Collective::SUM, pb::F32, {1}};
    std::mt19937 random(comm.rank());
    for (int round = 0; round < 300; ++round) {
      float wide[3], narrow = round;
      void *places[3], *place = &narrow;
      Ticket tickets[3];
      for (int i = 0; i < 3; ++i) {
        wide[i] = round + i;
        places[i] = &wide[i];
        tickets[i] = comm.startCollective(everybody, shape, &places[i], &places[i]);
      }
      Ticket ticket = comm.startCollective(two, shape, &place, &place);
      if (random() % 16 == 0)
        std::this_thread::yield();
      comm.wait(ticket, 0);
      for (int i = 2; i >= 0; --i)
        comm.wait(tickets[i], random() % 50);
      ASSERT_EQ(narrow, 2.0f * round);
      for (int i = 0; i < 3; ++i)
        ASSERT_EQ(wide[i], 4.0f * (round + i));
    }
  });
}

TEST_P(Comm, SendsMeetReceivesInOrder) {
  onRanks(3, [&](Communicator &comm) {
    int next = (comm.rank() + 1) % 3, before = (comm.rank() + 2) % 3;
    uint32_t out = comm.openSend(next, Stream::Forward), in = comm.openReceive(before, Stream::Forward);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> sent(2), got(2);
      Ticket sends[2], receives[2];
      for (int i = 0; i < 2; ++i) {
        sent[i] = comm.rank() * 10000 + 2 * round + i;
        sends[i] = comm.startSend(out, &sent[i], sizeof(int));
      }
      for (int i = 0; i < 2; ++i)
        receives[i] = comm.startReceive(in, &got[i], sizeof(int));
      for (int i = 0; i < 2; ++i) {
        comm.wait(receives[i], 10);
        comm.wait(sends[i], 10);
        ASSERT_EQ(got[i], before * 10000 + 2 * round + i);
      }
    }
  });
}

TEST_P(Comm, StreamsOfOnePairAreApart) {
  onRanks(2, [&](Communicator &comm) {
    int peer = 1 - comm.rank();
    if (comm.rank() == 0) {
      int values[] = {1, 2};
      Ticket backward = comm.startSend(comm.openSend(peer, Stream::Backward), &values[1], 4);
      Ticket forward = comm.startSend(comm.openSend(peer, Stream::Forward), &values[0], 4);
      comm.wait(forward, 10);
      comm.wait(backward, 10);
    } else {
      int forward = 0, backward = 0;
      Ticket first = comm.startReceive(comm.openReceive(peer, Stream::Forward), &forward, 4);
      comm.wait(first, 10);
      Ticket second = comm.startReceive(comm.openReceive(peer, Stream::Backward), &backward, 4);
      comm.wait(second, 10);
      EXPECT_EQ(forward, 1);
      EXPECT_EQ(backward, 2);
    }
  });
}

TEST_P(Comm, AbortWakesEveryWaitingRank) {
  std::atomic<int> stopped = 0;
  std::optional<Failure> failure = GetParam().run(4, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(all(4));
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20)); // the others sleep by now
      Failure mine;
      mine.rank = 2;
      mine.message = "out of patience";
      comm.abort(mine);
      return;
    }
    float value = 0;
    CollectiveShape shape{pb::Collective::ALL_REDUCE, pb::Collective::SUM, pb::F32, {1}};
    void *place = &value;
    Ticket ticket = comm.startCollective(group, shape, &place, &place);
    try {
      comm.wait(ticket, 10);
    } catch (const RankStopped &) {
      ++stopped;
    }
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->message, "out of patience");
  EXPECT_EQ(stopped, 3);
}

TEST_P(Comm, MembersThatDisagreeStop) {
  // They outlive both ranks: one may look at what the other gave when that has stopped already.
  std::array<CollectiveShape, 2> shapes;
  std::array<std::vector<float>, 2> values;
  std::array<void *, 2> places{};
  std::optional<Failure> failure = GetParam().run(2, [&](Communicator &comm) {
    int rank = comm.rank();
    uint32_t group = comm.joinGroup(all(2));
    values[rank].resize(8);
    places[rank] = values[rank].data();
    shapes[rank] = {pb::Collective::ALL_REDUCE, pb::Collective::SUM, pb::F32, {4 + rank}};
    Ticket ticket = comm.startCollective(group, shapes[rank], &places[rank], &places[rank]);
    EXPECT_THROW(comm.wait(ticket, 10), RankStopped);
  });
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->message, testing::HasSubstr("different collectives"));
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Comm, testing::Values(BackEnd{"local", runThreads}),
                         [](const auto &info) { return info.param.name; });

TEST(ShareOf, CoversTheRangeOnce) {
  for (int64_t n : {0, 1, 5, 10, 11, 100})
    for (int ranks : {1, 2, 3, 7, 16}) {
      int64_t next = 0;
      for (int i = 0; i < ranks; ++i) {
        Share share = shareOf(n, ranks, i);
        EXPECT_EQ(share.begin, next);
        next = share.end;
      }
      EXPECT_EQ(next, n);
    }
}

} // namespace
} // namespace espalier::rt
