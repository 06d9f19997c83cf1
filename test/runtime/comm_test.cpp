// The conformance suite of communicators on every back end: kinds x ranks x sizes x in place or not. Inputs encode
// rank and element, so that the expected result is a formula.
#include "runtime/kernels/dtype.h"
#include "test/runtime/comm_back_ends.h"

#include <cmath>
#include <gmock/gmock.h>
#include <random>
#include <thread>

namespace espalier::rt {
namespace {

class Comm : public testing::TestWithParam<BackEnd> {
protected:
  void SetUp() override {
    if (std::string why = GetParam().lacks(); !why.empty())
      GTEST_SKIP() << why;
  }
  void onRanks(int ranks, const Rank &rank) {
    std::optional<Failure> failure = GetParam().run(ranks, rank);
    EXPECT_FALSE(failure) << failure->message;
  }
};

constexpr int rankCounts[] = {1, 2, 4, 7};
constexpr int64_t sizes[] = {0, 1, 2, 3, 7, 1000, 1024, 1031, 5000, 10000};
constexpr int64_t largest = 10000;

/// Value `i` of rank `rank`. Sums of these values depend on the order of additions.
float valueOf(int rank, int64_t i) { return std::sin(1.0f + rank * 977 + i) * std::exp2(float(i % 19)); }

/// Sums in rank order.
float sumOf(int ranks, int64_t i) {
  float sum = valueOf(0, i);
  for (int rank = 1; rank < ranks; ++rank)
    sum += valueOf(rank, i);
  return sum;
}

void collect(Communicator &comm, uint32_t group, const CollectiveShape &shape, void *from, void *to) {
  Ticket ticket = comm.startCollective(group, shape, &from, &to);
  comm.wait(ticket, 100);
}

CollectiveShape shapeOf(pb::Transfer::Kind kind, int64_t elements, pb::DataType type = pb::F32) {
  return {.kind = kind, .type = type, .elements = {elements}};
}

/// Runs `check` on every number of ranks with every size, in place and not, with two buffers of `largest` elements per
/// rank. The size is per shard.
void forAll(const BackEnd &backEnd, const std::function<void(Communicator &, uint32_t group, int64_t size,
                                                             std::span<float> from, std::span<float> to)> &check) {
  for (int ranks : rankCounts) {
    std::optional<Failure> failure = backEnd.run(ranks, [&](Communicator &comm) {
      uint32_t group = comm.joinGroup(allOf(ranks), 1);
      std::span<float> from = operands<float>(comm, largest * ranks), to = operands<float>(comm, largest * ranks);
      for (int64_t size : sizes)
        check(comm, group, size, from, to);
    });
    EXPECT_FALSE(failure) << failure->message;
  }
}

TEST_P(Comm, AllReduceAddsInTheOrderOfRanks) {
  forAll(GetParam(), [](Communicator &comm, uint32_t group, int64_t size, std::span<float> from, std::span<float> to) {
    for (bool inPlace : {false, true}) {
      for (int64_t i = 0; i < size; ++i)
        from[i] = valueOf(comm.rank(), i);
      float *result = inPlace ? from.data() : to.data();
      collect(comm, group, shapeOf(pb::Transfer::ALL_REDUCE, size), from.data(), result);
      for (int64_t i = 0; i < size; ++i)
        ASSERT_EQ(result[i], sumOf(comm.ranks(), i)) << comm.ranks() << " ranks, element " << i << " of " << size;
    }
  });
}

TEST_P(Comm, ReduceScatterLeavesTheOwnPart) {
  forAll(GetParam(), [](Communicator &comm, uint32_t group, int64_t size, std::span<float> from, std::span<float> to) {
    int64_t all = size * comm.ranks(), begin = size * comm.rank();
    for (bool inPlace : {false, true}) {
      for (int64_t i = 0; i < all; ++i)
        from[i] = valueOf(comm.rank(), i);
      float *result = inPlace ? from.data() + begin : to.data();
      collect(comm, group, shapeOf(pb::Transfer::REDUCE_SCATTER, all), from.data(), result);
      for (int64_t i = 0; i < size; ++i)
        ASSERT_EQ(result[i], sumOf(comm.ranks(), begin + i)) << comm.ranks() << " ranks, " << i << " of " << size;
      for (int64_t i = 0; inPlace && i < all; ++i)
        if (i < begin || i >= begin + size)
          ASSERT_EQ(from[i], valueOf(comm.rank(), i)) << "another part was written";
    }
  });
}

TEST_P(Comm, AllGatherPutsPartsInTheOrderOfRanks) {
  forAll(GetParam(), [](Communicator &comm, uint32_t group, int64_t size, std::span<float> from, std::span<float> to) {
    for (bool inPlace : {false, true}) {
      std::ranges::fill(to, -1);
      float *part = inPlace ? to.data() + size * comm.rank() : from.data();
      for (int64_t i = 0; i < size; ++i)
        part[i] = valueOf(comm.rank(), i);
      collect(comm, group, shapeOf(pb::Transfer::ALL_GATHER, size * comm.ranks()), part, to.data());
      for (int64_t i = 0; i < size * comm.ranks(); ++i)
        ASSERT_EQ(to[i], valueOf(i / size, i % size)) << comm.ranks() << " ranks, " << i << " of " << size;
    }
  });
}

TEST_P(Comm, AllToAllExchangesParts) {
  forAll(GetParam(), [](Communicator &comm, uint32_t group, int64_t size, std::span<float> from, std::span<float> to) {
    int64_t all = size * comm.ranks();
    for (int64_t i = 0; i < all; ++i)
      from[i] = valueOf(comm.rank(), i);
    collect(comm, group, shapeOf(pb::Transfer::ALL_TO_ALL, all), from.data(), to.data());
    for (int64_t i = 0; i < all; ++i)
      ASSERT_EQ(to[i], valueOf(i / size, size * comm.rank() + i % size)) << comm.ranks() << " ranks, " << i;
  });
}

TEST_P(Comm, ShiftMovesRoundTheRing) {
  forAll(GetParam(), [](Communicator &comm, uint32_t group, int64_t size, std::span<float> from, std::span<float> to) {
    int ranks = comm.ranks();
    for (int shift : {1, -1, 3, 0, -9}) {
      for (int64_t i = 0; i < size; ++i)
        from[i] = valueOf(comm.rank(), i);
      CollectiveShape shape = shapeOf(pb::Transfer::SHIFT, size);
      shape.shift = shift;
      collect(comm, group, shape, from.data(), to.data());
      int source = (comm.rank() - shift % ranks + ranks) % ranks;
      for (int64_t i = 0; i < size; ++i)
        ASSERT_EQ(to[i], valueOf(source, i)) << ranks << " ranks, shift " << shift << ", element " << i;
    }
  });
}

/// Megabytes, which some back ends transfer in slices: every kind, with shards and types of different sizes.
TEST_P(Comm, LargeBuffers) {
  onRanks(3, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(allOf(3), 1);
    constexpr int64_t part = 600'011, all = 3 * part;
    std::span<float> from = operands<float>(comm, all), to = operands<float>(comm, all);
    for (int64_t i = 0; i < all; ++i)
      from[i] = valueOf(comm.rank(), i);
    auto expectAt = [&](int64_t i, float wanted, const char *what) { ASSERT_EQ(to[i], wanted) << what << ' ' << i; };
    collect(comm, group, shapeOf(pb::Transfer::ALL_REDUCE, all), from.data(), to.data());
    for (int64_t i = 0; i < all; i += 97)
      expectAt(i, sumOf(3, i), "sum");
    collect(comm, group, shapeOf(pb::Transfer::REDUCE_SCATTER, all), from.data(), to.data());
    for (int64_t i = 0; i < part; i += 97)
      expectAt(i, sumOf(3, part * comm.rank() + i), "own part of the sum");
    collect(comm, group, shapeOf(pb::Transfer::ALL_GATHER, all), from.data(), to.data());
    for (int64_t i = 0; i < all; i += 97)
      expectAt(i, valueOf(i / part, i % part), "gathered");
    collect(comm, group, shapeOf(pb::Transfer::ALL_TO_ALL, all), from.data(), to.data());
    for (int64_t i = 0; i < all; i += 97)
      expectAt(i, valueOf(i / part, part * comm.rank() + i % part), "exchanged");
    std::span<uint16_t> halves(reinterpret_cast<uint16_t *>(to.data()), all);
    for (int64_t i = 0; i < all; ++i)
      halves[i] = floatToBf16(float(i % 50 + comm.rank()));
    collect(comm, group, shapeOf(pb::Transfer::ALL_REDUCE, all, pb::BF16), halves.data(), halves.data());
    for (int64_t i = 0; i < all; i += 97)
      ASSERT_EQ(bf16ToFloat(halves[i]), 3 * (i % 50) + 3) << i;
  });
}

TEST_P(Comm, AllReduceTakesTheMaximum) {
  onRanks(3, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(allOf(3), 1);
    std::span<float> from = operands<float>(comm, 3), to = operands<float>(comm, 3);
    from[0] = float(comm.rank());
    from[1] = -float(comm.rank());
    from[2] = comm.rank() == 1 ? NAN : 1.0f;
    CollectiveShape shape = shapeOf(pb::Transfer::ALL_REDUCE, 3);
    shape.reduction = pb::MAX;
    collect(comm, group, shape, from.data(), to.data());
    EXPECT_EQ(to[0], 2);
    EXPECT_EQ(to[1], 0);
    EXPECT_TRUE(std::isnan(to[2]));
  });
}

/// 1 + 2^-9 + 2^-9: adding in bf16 would lose both small values. Adding in f32 and rounding once keeps them.
TEST_P(Comm, HalfPrecisionRoundsOnce) {
  onRanks(3, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(allOf(3), 1);
    uint16_t &value = operands<uint16_t>(comm, 1)[0];
    value = floatToBf16(comm.rank() == 0 ? 1.0f : 0x1p-8f);
    collect(comm, group, shapeOf(pb::Transfer::ALL_REDUCE, 1, pb::BF16), &value, &value);
    EXPECT_EQ(bf16ToFloat(value), 1.0f + 0x1p-7f);
    value = floatToF16(comm.rank() == 0 ? 1.0f : 0x1p-11f);
    collect(comm, group, shapeOf(pb::Transfer::ALL_REDUCE, 1, pb::F16), &value, &value);
    EXPECT_EQ(f16ToFloat(value), 1.0f + 0x1p-10f);
  });
}

/// Groups need not be contiguous or contain all ranks. Integer bytes are copied unchanged.
TEST_P(Comm, GatherOfSomeRanks) {
  onRanks(5, [&](Communicator &comm) {
    if (comm.rank() == 0 || comm.rank() == 3)
      return;
    uint32_t group = comm.joinGroup(std::vector<int>{1, 2, 4}, 1);
    std::span<int32_t> from = operands<int32_t>(comm, 11), to = operands<int32_t>(comm, 33);
    std::ranges::fill(from, 0x7f800001 + comm.rank()); // as floats these are signalling NaNs
    collect(comm, group, shapeOf(pb::Transfer::ALL_GATHER, 33, pb::I32), from.data(), to.data());
    for (int i = 0; i < 33; ++i)
      ASSERT_EQ(to[i], 0x7f800001 + (i < 11 ? 1 : i < 22 ? 2 : 4));
  });
}

TEST_P(Comm, BuffersOfOneCollectiveMayDiffer) {
  onRanks(3, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(allOf(3), 1);
    CollectiveShape shape = shapeOf(pb::Transfer::ALL_REDUCE, 0);
    shape.elements = {5, 700, 1, 0, 9};
    std::vector<std::span<float>> buffers;
    std::vector<void *> places;
    for (int64_t elements : shape.elements) {
      buffers.push_back(operands<float>(comm, elements));
      std::ranges::fill(buffers.back(), elements);
      places.push_back(buffers.back().data());
    }
    Ticket ticket = comm.startCollective(group, shape, places.data(), places.data());
    // The operand addresses are no longer needed.
    shape.elements.assign(5, 0);
    places.assign(5, nullptr);
    comm.wait(ticket, 100);
    for (const std::span<float> &buffer : buffers)
      EXPECT_THAT(buffer, testing::Each(3.0f * buffer.size()));
  });
}

/// More operations than a group keeps at once, several in flight, overlapping groups, and different speeds.
TEST_P(Comm, ManyRoundsInFlight) {
  onRanks(4, [&](Communicator &comm) {
    uint32_t everybody = comm.joinGroup(allOf(4), 1);
    int pair = comm.rank() / 2;
    uint32_t two = comm.joinGroup(std::vector<int>{2 * pair, 2 * pair + 1}, 1);
    CollectiveShape shape = shapeOf(pb::Transfer::ALL_REDUCE, 1);
    std::span<float> wide = operands<float>(comm, 3), narrow = operands<float>(comm, 1);
    std::mt19937 random(comm.rank());
    for (int round = 0; round < 300; ++round) {
      void *places[3], *place = narrow.data();
      Ticket tickets[3];
      narrow[0] = round;
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
      ASSERT_EQ(narrow[0], 2.0f * round);
      for (int i = 0; i < 3; ++i)
        ASSERT_EQ(wide[i], 4.0f * (round + i));
    }
  });
}

/// Each rank starts on a different queue first. If both queues were one group, the sums would mix values.
TEST_P(Comm, QueuesOfEqualMembersAreApart) {
  onRanks(2, [&](Communicator &comm) {
    uint32_t groups[] = {comm.joinGroup(allOf(2), 1), comm.joinGroup(allOf(2), 2)};
    EXPECT_NE(groups[0], groups[1]);
    EXPECT_EQ(comm.joinGroup(allOf(2), 1), groups[0]);
    std::span<float> values = operands<float>(comm, 2);
    Ticket tickets[2];
    for (int turn : {0, 1}) {
      int queue = turn ^ comm.rank();
      values[queue] = 10.0f * (queue + 1);
      void *place = &values[queue];
      tickets[queue] = comm.startCollective(groups[queue], shapeOf(pb::Transfer::ALL_REDUCE, 1), &place, &place);
    }
    for (Ticket &ticket : tickets)
      comm.wait(ticket, 10);
    EXPECT_THAT(values, testing::ElementsAre(20, 40));
  });
}

/// Rank 0 waits for the last operation while rank 1 needs rank 0's part of the first. Every wait must progress all
/// operations.
TEST_P(Comm, ProgressDoesNotDependOnWhoWaits) {
  onRanks(2, [&](Communicator &comm) {
    uint32_t first = comm.joinGroup(allOf(2), 1), last = comm.joinGroup(allOf(2), 2);
    std::span<float> values = operands<float>(comm, 4096);
    std::ranges::fill(values, 1);
    CollectiveShape shape = shapeOf(pb::Transfer::ALL_REDUCE, 2048);
    void *places[] = {values.data(), values.data() + 2048};
    Ticket tickets[2] = {comm.startCollective(first, shape, &places[0], &places[0])};
    if (comm.rank() == 1)
      comm.wait(tickets[0], 0);
    tickets[1] = comm.startCollective(last, shape, &places[1], &places[1]);
    comm.wait(tickets[1], 0);
    comm.wait(tickets[0], 0);
    EXPECT_THAT(values, testing::Each(2.0f));
  });
}

/// Rank 1 never polls its operations. Progress alone completes its parts, until rank 0 signals on another channel that
/// all are done.
TEST_P(Comm, ProgressEndsWhatNobodyPolls) {
  onRanks(2, [&](Communicator &comm) {
    uint32_t group = comm.joinGroup(allOf(2), 1);
    int peer = 1 - comm.rank();
    uint32_t out = comm.openSend(peer, 0), in = comm.openReceive(peer, 0);
    std::span<float> values = operands<float>(comm, 3);
    values[0] = values[1] = comm.rank() + 1;
    void *place = values.data();
    Ticket sum = comm.startCollective(group, shapeOf(pb::Transfer::ALL_REDUCE, 1), &place, &place);
    Ticket send = comm.startSend(out, &values[1], sizeof(float));
    Ticket receive = comm.startReceive(in, &values[2], sizeof(float));
    if (comm.rank() == 0) {
      for (Ticket *ticket : {&sum, &send, &receive})
        comm.wait(*ticket, 0);
      Ticket word = comm.startSend(comm.openSend(1, 9), nullptr, 0);
      comm.wait(word, 0);
    } else {
      Ticket word = comm.startReceive(comm.openReceive(0, 9), nullptr, 0);
      while (comm.poll(word) == Progress::Pending)
        comm.progress();
    }
    EXPECT_THAT(values, testing::ElementsAre(3, comm.rank() + 1, peer + 1));
  });
}

TEST_P(Comm, SendsMeetReceivesInOrder) {
  onRanks(3, [&](Communicator &comm) {
    int next = (comm.rank() + 1) % 3, before = (comm.rank() + 2) % 3;
    uint32_t out = comm.openSend(next, 0), in = comm.openReceive(before, 0);
    std::span<int> sent = operands<int>(comm, 2), got = operands<int>(comm, 2);
    for (int round = 0; round < 200; ++round) {
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

TEST_P(Comm, LinesOfOnePairAreApart) {
  onRanks(2, [&](Communicator &comm) {
    int peer = 1 - comm.rank();
    std::span<int> values = operands<int>(comm, 2);
    if (comm.rank() == 0) {
      values[0] = 1;
      values[1] = 2;
      Ticket second = comm.startSend(comm.openSend(peer, 7), &values[1], 4);
      Ticket first = comm.startSend(comm.openSend(peer, 0), &values[0], 4);
      comm.wait(first, 10);
      comm.wait(second, 10);
    } else {
      Ticket first = comm.startReceive(comm.openReceive(peer, 0), &values[0], 4);
      comm.wait(first, 10);
      Ticket second = comm.startReceive(comm.openReceive(peer, 7), &values[1], 4);
      comm.wait(second, 10);
      EXPECT_THAT(values, testing::ElementsAre(1, 2));
    }
  });
}

/// Two transfers of a plan share one channel. A rank may also send to itself.
TEST_P(Comm, LinesOpenedTwiceAreOne) {
  onRanks(2, [&](Communicator &comm) {
    std::span<int> sent = operands<int>(comm, 2), got = operands<int>(comm, 2);
    for (int target : {1 - comm.rank(), comm.rank()}) {
      uint32_t outs[] = {comm.openSend(target, 4), comm.openSend(target, 4)};
      uint32_t ins[] = {comm.openReceive(target, 4), comm.openReceive(target, 4)};
      EXPECT_EQ(outs[0], outs[1]);
      EXPECT_EQ(ins[0], ins[1]);
      EXPECT_NE(outs[0], ins[0]);
      Ticket sends[2], receives[2];
      for (int i : {0, 1}) {
        sent[i] = 10 * comm.rank() + i;
        sends[i] = comm.startSend(outs[i], &sent[i], sizeof(int));
        receives[i] = comm.startReceive(ins[i], &got[i], sizeof(int));
      }
      for (int i : {0, 1}) {
        comm.wait(sends[i], 10);
        comm.wait(receives[i], 10);
        EXPECT_EQ(got[i], 10 * target + i);
      }
    }
  });
}

TEST_P(Comm, TransfersOfEverySize) {
  onRanks(2, [&](Communicator &comm) {
    std::span<float> values = operands<float>(comm, largest);
    uint32_t link = comm.rank() == 0 ? comm.openSend(1, 3) : comm.openReceive(0, 3);
    for (int64_t size : sizes) {
      for (int64_t i = 0; i < size; ++i)
        values[i] = comm.rank() == 0 ? valueOf(0, i + size) : -1;
      size_t bytes = size * sizeof(float);
      Ticket ticket =
          comm.rank() == 0 ? comm.startSend(link, values.data(), bytes) : comm.startReceive(link, values.data(), bytes);
      comm.wait(ticket, 10);
      for (int64_t i = 0; i < size; ++i)
        ASSERT_EQ(values[i], valueOf(0, i + size)) << i << " of " << size;
    }
  });
}

TEST_P(Comm, AllocatedMemoryIsZeroedAlignedAndApart) {
  onRanks(2, [&](Communicator &comm) {
    std::vector<std::span<std::byte>> pieces;
    for (size_t bytes : {size_t{1}, size_t{64}, size_t{5000}, size_t{0}, size_t{3} << 20, size_t{100}}) {
      pieces.emplace_back(comm.allocate(bytes), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces.back().data()) % 64, 0u);
      EXPECT_THAT(std::count(pieces.back().begin(), pieces.back().end(), std::byte{0}), bytes);
    }
    for (size_t i = 0; i < pieces.size(); ++i)
      std::ranges::fill(pieces[i], std::byte(10 * comm.rank() + i + 1));
    for (size_t i = 0; i < pieces.size(); ++i)
      EXPECT_EQ(std::ranges::count(pieces[i], std::byte(10 * comm.rank() + i + 1)), pieces[i].size());
  });
}

/// Joins a group of all ranks and waits for a sum that one rank never joins. The rank must be stopped there at the
/// latest.
void waitInVain(Communicator &comm, uint32_t queue, int64_t elements = 1) {
  auto sum = [&] {
    uint32_t group = comm.joinGroup(allOf(comm.ranks()), queue);
    void *place = operands<float>(comm, elements).data();
    collect(comm, group, shapeOf(pb::Transfer::ALL_REDUCE, elements), place, place);
  };
  EXPECT_THROW(sum(), RankStopped);
}

TEST_P(Comm, AbortWakesEveryWaitingRank) {
  std::optional<Failure> failure = GetParam().run(4, [&](Communicator &comm) {
    if (comm.rank() != 2)
      return waitInVain(comm, 1);
    comm.joinGroup(allOf(4), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); // the other ranks are asleep now
    comm.abort({2, 1, 17, "RUN", "block.forward", "matmul", "out of patience"});
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->stage, 1);
  EXPECT_EQ(failure->step, 17);
  EXPECT_EQ(failure->action, "RUN");
  EXPECT_EQ(failure->subprogram, "block.forward");
  EXPECT_EQ(failure->op, "matmul");
  EXPECT_EQ(failure->message, "out of patience");
}

TEST_P(Comm, TheFirstFailureIsKept) {
  std::optional<Failure> failure = GetParam().run(2, [&](Communicator &comm) {
    if (comm.rank() == 1)
      waitInVain(comm, 1);
    Failure failure;
    failure.rank = comm.rank();
    failure.message = std::string(10000, 'a' + comm.rank());
    comm.abort(failure);
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 0);
  EXPECT_EQ(failure->message.substr(0, 8000), std::string(8000, 'a')) << "cut, but not early";
}

TEST_P(Comm, MembersThatDisagreeStop) {
  std::optional<Failure> failure = GetParam().run(
      2, [&](Communicator &comm) { waitInVain(comm, comm.joinGroup(allOf(2), 1), /*elements=*/4 + comm.rank()); });
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->message, testing::HasSubstr("of one group started different collectives"));
}

TEST_P(Comm, EndsThatDisagreeStop) {
  std::optional<Failure> failure = GetParam().run(2, [&](Communicator &comm) {
    void *place = operands<float>(comm, 4).data();
    Ticket ticket = comm.rank() == 0 ? comm.startSend(comm.openSend(1, 0), place, 8)
                                     : comm.startReceive(comm.openReceive(0, 0), place, 12);
    if (comm.rank() == 1)
      EXPECT_THROW(comm.wait(ticket, 10), RankStopped);
    else // the send may complete before the receiver checks its size
      waitInVain(comm, 1);
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "rank 0 sends 8 bytes where rank 1 receives 12");
}

/// Rank 0 starts one operation more than fits, while rank 1 waits for another group's operation.
std::optional<Failure> startTooMany(const BackEnd &backEnd, const std::function<Ticket(Communicator &)> &start) {
  return backEnd.run(2, [&](Communicator &comm) {
    if (comm.rank() == 1)
      return waitInVain(comm, /*queue=*/2);
    comm.joinGroup(allOf(2), 1);
    comm.openSend(1, 0);
    Ticket ticket;
    for (int i = 0; i <= maxInFlight; ++i) {
      EXPECT_EQ(comm.poll(ticket), i == 0 ? Progress::Done : Progress::Pending);
      ticket = start(comm);
    }
    EXPECT_EQ(comm.poll(ticket), Progress::Stopped);
  });
}

TEST_P(Comm, TooManyCollectivesStop) {
  std::optional<Failure> failure = startTooMany(GetParam(), [](Communicator &comm) {
    void *place = operands<float>(comm, 1).data();
    return comm.startCollective(/*group=*/0, shapeOf(pb::Transfer::ALL_REDUCE, 1), &place, &place);
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "rank 0 started more than 64 collectives at once in one group");
}

TEST_P(Comm, TooManyTransfersStop) {
  std::optional<Failure> failure = startTooMany(
      GetParam(), [](Communicator &comm) { return comm.startSend(/*link=*/0, operands<float>(comm, 1).data(), 4); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "rank 0 started more than 64 transfers at once on one channel");
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Comm, testing::ValuesIn(backEnds().begin(), backEnds().end()),
                         [](const auto &info) { return info.param.name; });

} // namespace
} // namespace espalier::rt
