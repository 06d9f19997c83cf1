#include "test/runtime/kernels/harness.h"

#include <limits>

namespace espalier::rt {

namespace {

TEST(Dtype, Bf16RoundsToNearestEven) {
  EXPECT_EQ(floatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(floatToBf16(1.0f + 0x1p-8f), 0x3F80);           // a tie rounds down to even
  EXPECT_EQ(floatToBf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3F82); // a tie rounds up to even
  EXPECT_EQ(floatToBf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3F81);
  EXPECT_EQ(floatToBf16(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(Dtype, RoundTripsEveryNumber) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    uint16_t half = static_cast<uint16_t>(bits);
    if (std::isnan(bf16ToFloat(half)))
      EXPECT_TRUE(std::isnan(bf16ToFloat(floatToBf16(bf16ToFloat(half))))) << bits;
    else
      EXPECT_EQ(floatToBf16(bf16ToFloat(half)), half);
    if (std::isnan(f16ToFloat(half)))
      EXPECT_TRUE(std::isnan(f16ToFloat(floatToF16(f16ToFloat(half))))) << bits;
    else
      EXPECT_EQ(floatToF16(f16ToFloat(half)), half);
  }
}

TEST(Dtype, NanWithLowPayloadStaysNan) {
  float nan = std::bit_cast<float>(0x7F800001u);
  EXPECT_TRUE(std::isnan(bf16ToFloat(floatToBf16(nan))));
  EXPECT_TRUE(std::isnan(f16ToFloat(floatToF16(nan))));
}

TEST(Dtype, F16EqualsTheCompilersConversion) {
  std::mt19937 generator(5);
  for (int i = 0; i < 200000; ++i) {
    float value = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    if (i % 2) // half of the numbers are in or near the range of f16
      value = std::ldexp(static_cast<float>(generator() % 4097) / 4096.0f, static_cast<int>(generator() % 44) - 27);
    if (std::isnan(value))
      continue;
    uint16_t expected = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(floatToF16(value), expected) << value;
  }
}

// The vector loops must give the same results as the scalar functions.
TEST(Dtype, VectorsAgreeWithScalarsAtEveryLevel) {
  std::vector<float> values;
  std::mt19937 generator(6);
  for (int i = 0; i < 10007; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(generator())));
  values.insert(values.end(), {0.0f, -0.0f, INFINITY, -INFINITY, 65519.9f, 65520.0f, 1e-7f, 0x1p-25f, 0x1.8p-25f});
  forEachLevel([&](const cpu::Loops &loops) {
    std::vector<uint16_t> bf16(values.size()), f16(values.size());
    int64_t count = static_cast<int64_t>(values.size());
    loops.convert(values.data(), Storage::F32, bf16.data(), Storage::BF16, count);
    loops.convert(values.data(), Storage::F32, f16.data(), Storage::F16, count);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(bf16[i], floatToBf16(values[i])) << values[i];
      ASSERT_EQ(f16[i], floatToF16(values[i])) << values[i];
    }
  });
}

} // namespace

} // namespace espalier::rt
