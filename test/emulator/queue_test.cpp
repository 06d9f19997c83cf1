// Tests streams, their order, and happens-before of byte ranges, without the driver.
#include "test/emulator/queue.h"

#include <gmock/gmock.h>

#include <set>

namespace espalier::emulator {
namespace {

/// A queue that records the order in which its work runs.
struct Noted {
  Queue queue;
  std::string order;
  std::vector<Race> races;
  std::vector<std::string> faults;

  explicit Noted(uint64_t seed = 0) : queue(seed) {
    queue.onRace = [this](const Race &race) { races.push_back(race); };
    queue.onFault = [this](const std::exception &error) { faults.push_back(error.what()); };
  }
  void add(Stream *stream, char name, Accesses accesses = {}) {
    queue.enqueue(stream, {std::string(1, name), [this, name, accesses] { return order += name, accesses; }});
  }
};

const Accesses writesAll{{}, {{1000, 1100}}}, readsAll{{{1000, 1100}}, {}};

TEST(Queue, RunsOnlyNeededWork) {
  Noted noted;
  Stream *first = noted.queue.open(/*isBlocking=*/false), *second = noted.queue.open(false),
         *third = noted.queue.open(false);
  Event event{.hasTiming = false};
  noted.add(first, 'a');
  noted.queue.record(event, first);
  noted.add(first, 'b');
  noted.add(third, 'c');
  noted.queue.wait(second, event);
  noted.add(second, 'd');
  noted.queue.finish(second->last);
  EXPECT_EQ(noted.order, "ad");
  noted.queue.finishAll();
  EXPECT_EQ(noted.order, "adbc");
}

TEST(Queue, SeedsChooseOtherOrdersThatObeyTheWaits) {
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Noted noted(seed);
    Stream *first = noted.queue.open(false), *second = noted.queue.open(false);
    Event event{.hasTiming = false};
    noted.add(first, 'a');
    noted.add(first, 'b');
    noted.queue.record(event, first);
    noted.add(second, 'x');
    noted.queue.wait(second, event);
    noted.add(second, 'y');
    noted.queue.finishAll();
    EXPECT_LT(noted.order.find('a'), noted.order.find('b'));
    EXPECT_EQ(noted.order.back(), 'y');
    orders.insert(noted.order);
  }
  EXPECT_THAT(orders, testing::UnorderedElementsAre("abxy", "axby", "xaby"));
}

TEST(Queue, AWaitRefersToTheLastRecordBeforeIt) {
  Noted noted;
  Stream *first = noted.queue.open(false), *second = noted.queue.open(false);
  Event event{.hasTiming = false};
  noted.queue.wait(second, event); // no event was recorded, so there is nothing to wait for
  noted.queue.record(event, first);
  noted.queue.wait(second, event);
  noted.add(first, 'a', writesAll);
  noted.queue.record(event, first); // too late for the wait above
  noted.add(second, 'b', readsAll);
  noted.queue.finishAll();
  ASSERT_EQ(noted.races.size(), 1u);
  EXPECT_EQ(noted.races[0].first, "a");
}

TEST(Queue, RacesAreSeenInEveryOrder) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Noted noted(seed);
    noted.add(noted.queue.open(false), 'w', writesAll);
    noted.add(noted.queue.open(false), 'r', readsAll);
    noted.queue.finishAll();
    ASSERT_EQ(noted.races.size(), 1u) << noted.order;
    EXPECT_EQ(noted.races[0].first + noted.races[0].second, noted.order);
    EXPECT_NE(noted.races[0].firstWrites, noted.races[0].secondWrites);
  }
}

TEST(Queue, OrderPassesThroughAThirdStream) {
  Noted noted;
  Stream *first = noted.queue.open(false), *second = noted.queue.open(false), *third = noted.queue.open(false);
  Event one{.hasTiming = false}, two{.hasTiming = false};
  noted.add(first, 'a', writesAll);
  noted.queue.record(one, first);
  noted.queue.wait(second, one);
  noted.queue.record(two, second);
  noted.queue.wait(third, two);
  noted.add(third, 'c', readsAll);
  noted.queue.finishAll();
  EXPECT_EQ(noted.order, "ac");
  EXPECT_TRUE(noted.races.empty());
}

TEST(Queue, TheHostOrdersWhatItHasWaitedFor) {
  for (bool waits : {true, false}) {
    Noted noted;
    Stream *first = noted.queue.open(false), *second = noted.queue.open(false);
    noted.add(first, 'a', writesAll);
    if (waits)
      noted.queue.finish(first->last);
    noted.add(second, 'b', writesAll);
    noted.queue.finishAll();
    EXPECT_EQ(noted.races.empty(), waits);
  }
}

TEST(Queue, AfterAFaultNothingRuns) {
  Noted noted;
  Stream *stream = noted.queue.open(false);
  noted.queue.enqueue(stream, {"bad", []() -> Accesses { throw std::runtime_error("left its memory"); }});
  noted.add(stream, 'a');
  noted.queue.finishAll();
  EXPECT_EQ(noted.order, "");
  EXPECT_THAT(noted.faults, testing::ElementsAre("left its memory"));
}

// Work that waits for other devices blocks only its own stream, and its dependencies run.
TEST(Queue, WorkThatWaitsForOthersBlocksOnlyItsStream) {
  for (uint64_t seed : {0, 1, 2}) {
    Noted noted(seed);
    Stream *first = noted.queue.open(false), *second = noted.queue.open(false);
    bool isThere = false;
    auto receive = [&] { return noted.order += 'r', Accesses(); };
    noted.queue.enqueue(first, {"receive", receive, [&] { return isThere; }});
    noted.add(second, 'a');
    auto send = [&] { return noted.order += 's', Accesses(); };
    noted.queue.enqueue(second, {"send", send, [&] { return isThere = true; }});
    noted.add(second, 'b');
    noted.queue.finish(first->last);
    EXPECT_LT(noted.order.find('s'), noted.order.find('r')) << "seed " << seed;
    EXPECT_EQ(noted.order.substr(0, 2), "as");
    EXPECT_FALSE(noted.queue.carryOn());
  }
}

TEST(Queue, AfterAFaultNothingWaitsForOthers) {
  Noted noted;
  Stream *stream = noted.queue.open(false);
  noted.queue.enqueue(stream,
                      {"bad", [] { return Accesses(); }, []() -> bool { throw std::runtime_error("too many"); }});
  noted.queue.enqueue(stream, {"late", [] { return Accesses(); }, [] { return false; }});
  noted.queue.finishAll();
  EXPECT_THAT(noted.faults, testing::ElementsAre("too many"));
}

TEST(AccessMap, ReportsBytesThatAreAccessedTwice) {
  AccessMap map;
  auto mark = [](size_t stream, uint64_t tick, const char *name) {
    return Mark{stream, tick, std::make_shared<const std::string>(name)};
  };
  Clock first, second, both;
  first.advance(0, 1);
  second.advance(1, 1);
  EXPECT_FALSE(map.add(mark(0, 1, "left"), first, {{}, {{0, 64}, {128, 192}}}));
  EXPECT_FALSE(map.add(mark(1, 1, "gap"), second, {{{64, 128}}, {{64, 128}}}));
  auto race = map.add(mark(1, 2, "over"), second, {{{120, 130}}, {}});
  ASSERT_TRUE(race);
  EXPECT_EQ(race->bytes, (Range{128, 130}));
  EXPECT_EQ(race->first, "left");
  // The history of freed memory is forgotten.
  map.forget({0, 64});
  EXPECT_FALSE(map.add(mark(1, 3, "after"), second, {{}, {{0, 64}}}));
  both = second;
  both.join(first);
  both.advance(1, 4);
  EXPECT_FALSE(map.add(mark(1, 4, "joined"), both, {{}, {{120, 192}}}));
}

} // namespace
} // namespace espalier::emulator
