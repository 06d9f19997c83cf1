// Compares both generators with recorded numbers of NumPy.
#include "runtime/dataset/numpy_random.h"
#include "test/runtime/tokenizer/golden.h"

#include <nlohmann/json.hpp>
#include <numeric>

namespace espalier::rt {
namespace {

using namespace test;

TEST(NumpyRandom, FirstWordsOfMt19937) {
  LegacyRandom random(1234);
  for (uint32_t want : {822569775U, 2137449171U, 2671936806U, 3512589365U, 1880026316U})
    EXPECT_EQ(random.next(), want);
}

TEST(NumpyRandom, ShufflesAsRecorded) {
  ESPALIER_NEEDS_FIXTURES();
  auto golden = nlohmann::json::parse(slurp(sharedData() + "golden/numpy_randomstate_shuffle.json"));
  ASSERT_EQ(golden["shuffle"].size(), 8U);
  for (const auto &one : golden["shuffle"]) {
    std::vector<int32_t> values(one["n"].get<int>());
    std::iota(values.begin(), values.end(), 0);
    LegacyRandom(one["seed"].get<uint32_t>()).shuffle(std::span<int32_t>(values));
    EXPECT_EQ(digestOf(std::span<const int32_t>(values)), one["sha256_le_i32"].get<std::string>()) << one["n"];
  }
}

TEST(NumpyRandom, MockLengthsAsRecorded) {
  ESPALIER_NEEDS_FIXTURES();
  auto golden = nlohmann::json::parse(slurp(sharedData() + "golden/mock_gpt_lengths.json"));
  std::vector<int32_t> lengths = defaultRngIntegers(0, 1, 4096, 100000);
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), golden["sum"]);
  EXPECT_EQ(digestOf(std::span<const int32_t>(lengths)), golden["sha256_le_i32"].get<std::string>());
}

TEST(NumpyRandom, LimitsBeyond32BitsStayInRange) {
  LegacyRandom random(7);
  bool sawHigh = false;
  for (int i = 0; i < 100; ++i) {
    uint64_t value = random.below(0x1234567890ULL);
    EXPECT_LE(value, 0x1234567890ULL);
    sawHigh |= value > 0xffffffffU;
  }
  EXPECT_TRUE(sawHigh);
}

} // namespace
} // namespace espalier::rt
