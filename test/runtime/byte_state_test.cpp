// Events in, faults out: what the map of bytes says after writes, parts and flights.
#include "runtime/verify/byte_state.h"

#include <gtest/gtest.h>

namespace espalier::rt::verify {
namespace {

constexpr Axes dp = 1 << 1, tp = 1 << 4;

Content ready(uint32_t place, uint32_t write = 0) {
  Content content;
  content.kind = Content::Ready;
  content.instance = {1, place, 0};
  content.write = write;
  return content;
}

bool isReady(const ByteState &bytes, Span span, uint32_t place) { return !bytes.ready(span, {1, place, 0}, 0); }

TEST(ByteState, BeginsUndefined) {
  ByteState bytes(64);
  auto fault = bytes.ready({0, 64}, {1, 0, 0}, 0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Fault::OtherContent);
  EXPECT_EQ(fault->byte, 0);
}

TEST(ByteState, SaysWhichByteHoldsSomethingElse) {
  ByteState bytes(64);
  bytes.set({0, 64}, ready(1));
  bytes.set({32, 40}, ready(2));
  EXPECT_TRUE(isReady(bytes, {0, 32}, 1));
  EXPECT_TRUE(isReady(bytes, {40, 64}, 1));
  EXPECT_EQ(bytes.ready({0, 64}, {1, 1, 0}, 0)->byte, 32);
}

TEST(ByteState, TellsTwoWritesOfOneValueApart) {
  ByteState bytes(64);
  bytes.set({0, 32}, ready(1, 7));
  bytes.set({32, 64}, ready(1, 8));
  EXPECT_TRUE(isReady(bytes, {0, 32}, 1));
  EXPECT_TRUE(isReady(bytes, {32, 64}, 1));
  EXPECT_FALSE(isReady(bytes, {16, 48}, 1));
}

TEST(ByteState, ValueAtAnotherOriginIsAnother) {
  ByteState bytes(64);
  bytes.set({0, 32}, ready(1));
  EXPECT_TRUE(bytes.ready({0, 32}, {1, 1, 0}, 4));
}

TEST(ByteState, OwnPartIsNotTheWhole) {
  ByteState bytes(64);
  bytes.set({0, 64, dp}, ready(1));
  EXPECT_TRUE(isReady(bytes, {0, 64, dp}, 1));
  EXPECT_FALSE(isReady(bytes, {0, 64}, 1));
  EXPECT_EQ(bytes.check({0, 64, tp}, [](const Content &) { return true; })->kind, Fault::OtherCut);
  bytes.set({0, 64}, ready(1)); // gathered
  EXPECT_TRUE(isReady(bytes, {0, 64}, 1));
  EXPECT_TRUE(isReady(bytes, {0, 64, tp}, 1));
}

TEST(ByteState, FlightsKeepBytes) {
  ByteState bytes(64);
  bytes.set({0, 64}, ready(1));
  bytes.open({0, 32}, /*isWrite=*/false);
  EXPECT_TRUE(isReady(bytes, {0, 64}, 1)) << "what is read may be read";
  EXPECT_EQ(bytes.free({16, 64})->kind, Fault::Read);
  EXPECT_FALSE(bytes.free({32, 64}));
  bytes.open({32, 64}, /*isWrite=*/true);
  EXPECT_EQ(bytes.ready({0, 64}, {1, 1, 0}, 0)->kind, Fault::Written);
  bytes.close({32, 64}, /*isWrite=*/true);
  bytes.close({0, 32}, /*isWrite=*/false);
  EXPECT_FALSE(bytes.free({0, 64}));
  EXPECT_TRUE(isReady(bytes, {0, 64}, 1));
}

TEST(ByteState, NeighboursWithOneStateAreOnePiece) {
  ByteState bytes(64);
  for (int i = 0; i < 64; i += 8)
    bytes.set({i, i + 8}, ready(1));
  int pieces = 0;
  bytes.forEach([&](Span, const Content &content) { pieces += content.kind == Content::Ready; });
  EXPECT_EQ(pieces, 1);
}

} // namespace
} // namespace espalier::rt::verify
