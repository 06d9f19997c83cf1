// Tests the faults that the byte map reports after writes, partial writes and in-flight transfers.
#include "runtime/verify/byte_state.h"

#include <gtest/gtest.h>

namespace espalier::rt::verify {
namespace {

constexpr Axes dp = 1 << 1, tp = 1 << 4;

Content ready(uint32_t value) {
  Content content;
  content.kind = Content::Ready;
  content.instance = {value, 0, 0};
  return content;
}

/// Returns the first byte that holds another value or is in flight.
std::optional<Fault> check(const ByteState &bytes, Span span, uint32_t value, uint32_t queue = noQueue) {
  return bytes.check(span, [&](const Content &content) { return content == ready(value); }, queue);
}

bool isReady(const ByteState &bytes, Span span, uint32_t value) { return !check(bytes, span, value); }

TEST(ByteState, BeginsUndefined) {
  ByteState bytes(64);
  auto fault = check(bytes, {0, 64}, 0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Fault::OtherContent);
  EXPECT_EQ(fault->byte, 0);
}

TEST(ByteState, ReportsTheFirstWrongByte) {
  ByteState bytes(64);
  bytes.set({0, 64}, ready(1));
  bytes.set({32, 40}, ready(2));
  EXPECT_TRUE(isReady(bytes, {0, 32}, 1));
  EXPECT_TRUE(isReady(bytes, {40, 64}, 1));
  EXPECT_EQ(check(bytes, {0, 64}, 1)->byte, 32);
}

TEST(ByteState, ShardsDoNotDefineTheWholeBuffer) {
  ByteState bytes(64);
  bytes.set({0, 64, dp}, ready(1));
  EXPECT_TRUE(isReady(bytes, {0, 64, dp}, 1));
  EXPECT_FALSE(isReady(bytes, {0, 64}, 1));
  EXPECT_EQ(bytes.check({0, 64, tp}, [](const Content &) { return true; })->kind, Fault::OtherCut);
  bytes.set({0, 64}, ready(1)); // gathered
  EXPECT_TRUE(isReady(bytes, {0, 64}, 1));
  EXPECT_TRUE(isReady(bytes, {0, 64, tp}, 1));
}

TEST(ByteState, InFlightTransfersBlockTheirBytes) {
  ByteState bytes(64);
  bytes.set({0, 64}, ready(1));
  bytes.open({0, 32}, /*isWrite=*/false, /*queue=*/2);
  EXPECT_TRUE(isReady(bytes, {0, 64}, 1)) << "what is read may be read";
  EXPECT_EQ(bytes.free({16, 64})->kind, Fault::Read);
  EXPECT_FALSE(bytes.free({32, 64}));
  bytes.open({32, 64}, /*isWrite=*/true, /*queue=*/2);
  EXPECT_EQ(check(bytes, {0, 64}, 1)->kind, Fault::Written);
  bytes.close({32, 64}, /*isWrite=*/true);
  bytes.close({0, 32}, /*isWrite=*/false);
  EXPECT_FALSE(bytes.free({0, 64}));
  EXPECT_TRUE(isReady(bytes, {0, 64}, 1));
}

/// The next transfer of the same queue may read and overwrite the bytes that a transfer writes.
TEST(ByteState, TransfersOfOneQueueRunInOrder) {
  ByteState bytes(64);
  bytes.set({0, 64}, ready(1));
  bytes.open({0, 64}, /*isWrite=*/true, /*queue=*/2);
  EXPECT_FALSE(check(bytes, {0, 64}, 1, 2));
  EXPECT_FALSE(bytes.free({0, 64}, 2));
  EXPECT_EQ(check(bytes, {0, 64}, 1, 3)->kind, Fault::Written);
  bytes.open({0, 64}, /*isWrite=*/false, /*queue=*/3);
  EXPECT_TRUE(bytes.free({0, 64}, 2)) << "another queue reads it too";
}

TEST(ByteState, MergesAdjacentRangesOfEqualState) {
  ByteState bytes(64);
  for (int i = 0; i < 64; i += 8)
    bytes.set({i, i + 8}, ready(1));
  int pieces = 0;
  bytes.forEach([&](Span, const Content &content) { pieces += content.kind == Content::Ready; });
  EXPECT_EQ(pieces, 1);
}

} // namespace
} // namespace espalier::rt::verify
