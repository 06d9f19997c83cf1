// Compares sampling with probabilities that are computed by hand. The logits are logarithms of small numbers.
#include "runtime/generate/sample.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace espalier::rt {
namespace {

/// Returns logits with the probabilities 0.1, 0.4, 0.2, 0.1, 0.2 at temperature 1.
std::vector<float> logits() {
  std::vector<float> values;
  for (double weight : {1, 4, 2, 1, 2})
    values.push_back(static_cast<float>(std::log(weight)));
  return values;
}

void expectTable(const Sampling &sampling, const std::vector<std::pair<int32_t, double>> &expected) {
  std::vector<TokenProbability> tokens = distribution(logits(), sampling);
  ASSERT_EQ(tokens.size(), expected.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i].token, expected[i].first) << "place " << i;
    EXPECT_NEAR(tokens[i].probability, expected[i].second, 1e-6) << "place " << i;
  }
}

TEST(Distribution, OfTemperatureZeroIsTheBestToken) { expectTable({.temperature = 0}, {{1, 1}}); }

TEST(Distribution, OfTemperatureOneIsTheSoftmax) {
  expectTable({.temperature = 1}, {{1, 0.4}, {2, 0.2}, {4, 0.2}, {0, 0.1}, {3, 0.1}});
}

// Half the temperature squares the weights: they are 1, 16, 4, 1, 4 of 26.
TEST(Distribution, IsSharperAtLowTemperature) {
  expectTable({.temperature = 0.5}, {{1, 16.0 / 26}, {2, 4.0 / 26}, {4, 4.0 / 26}, {0, 1.0 / 26}, {3, 1.0 / 26}});
}

TEST(Distribution, OfTopKKeepsTheLowerOfEqualTokens) {
  expectTable({.temperature = 1, .topK = 2}, {{1, 2.0 / 3}, {2, 1.0 / 3}});
}

// 0.4 + 0.2 is less than 0.7, and adding the next 0.2 exceeds it.
TEST(Distribution, OfTopPIsTheFewestTokensThatReachIt) {
  expectTable({.temperature = 1, .topP = 0.7}, {{1, 0.5}, {2, 0.25}, {4, 0.25}});
}

TEST(Distribution, OfATinyTopPIsTheBestToken) { expectTable({.temperature = 1, .topP = 1e-6}, {{1, 1}}); }

// topP applies to the tokens that topK keeps, with the weights 4, 2, 2 of 8.
TEST(Distribution, TakesTopPOfTopK) {
  expectTable({.temperature = 1, .topK = 3, .topP = 0.7}, {{1, 2.0 / 3}, {2, 1.0 / 3}});
}

// The best token has 0.4: 0.2 is half of it, and 0.1 less than 0.3 of it.
TEST(Distribution, OfMinPKeepsAShareOfTheBest) {
  expectTable({.temperature = 1, .minP = 0.3}, {{1, 0.5}, {2, 0.25}, {4, 0.25}});
  expectTable({.temperature = 1, .minP = 1}, {{1, 1}});
  expectTable({.temperature = 1, .topK = 2, .minP = 0.1}, {{1, 2.0 / 3}, {2, 1.0 / 3}});
  // Half the temperature squares the weights: 4 is 0.25 of 16.
  expectTable({.temperature = 0.5, .minP = 0.3}, {{1, 1}});
}

// The logits of forbidden tokens are the lowest, at every temperature.
TEST(Distribution, LeavesOutTokensWithoutProbability) {
  constexpr float forbidden = std::numeric_limits<float>::lowest();
  std::vector<float> some = {forbidden, 1, forbidden, 0, forbidden};
  EXPECT_EQ(distribution(some, {.temperature = 1, .topK = 4}).size(), 2U);
  for (double temperature : {0.1, 1.0, 1e6})
    for (uint64_t draw = 0; draw < 200; ++draw)
      EXPECT_THAT(sampleToken(some, {.temperature = temperature, .seed = 3}, draw), testing::AnyOf(1, 3));
}

// The prompt is 0, 1; the text is 1, 2, 2. Values are those of RepetitionPenaltyLogitsProcessor of transformers, minus
// OpenAI's penalties, which count the text alone.
TEST(AdjustedLogits, HasPenaltiesAndBias) {
  const std::vector<float> given = {2, -2, 1, -1, 0};
  const std::vector<int32_t> prompt = {0, 1}, text = {1, 2, 2};
  using testing::ElementsAre, testing::FloatEq;
  EXPECT_EQ(adjustedLogits(given, {}, prompt, text), given);
  EXPECT_THAT(adjustedLogits(given, {.repetitionPenalty = 2}, prompt, text), ElementsAre(1, -4, 0.5F, -1, 0));
  EXPECT_THAT(adjustedLogits(given, {.presencePenalty = 0.5, .frequencyPenalty = 0.25}, prompt, text),
              ElementsAre(2, -2.75F, 0, -1, 0));
  EXPECT_THAT(adjustedLogits(given, {.presencePenalty = -1, .repetitionPenalty = 2}, prompt, text),
              ElementsAre(1, -3, 1.5F, -1, 0));
  EXPECT_THAT(adjustedLogits(given, {.bias = {{3, 100}, {0, -1.5}}}, prompt, text), ElementsAre(0.5F, -2, 1, 99, 0));
}

/// Returns logits with a long tail, in no order.
std::vector<float> manyLogits() {
  std::vector<float> values;
  for (int token = 0; token < 5000; ++token)
    values.push_back(4 * std::sin(static_cast<float>(token * token)));
  return values;
}

TEST(Distribution, OfTopPInALargeVocabularyStartsTheSoftmax) {
  std::vector<TokenProbability> all = distribution(manyLogits(), {.temperature = 1});
  ASSERT_EQ(all.size(), 5000U);
  for (double topP : {0.001, 0.01, 0.2, 0.9, 0.9999}) {
    std::vector<TokenProbability> tokens = distribution(manyLogits(), {.temperature = 1, .topP = topP});
    double sum = 0;
    size_t size = 0;
    while (sum < topP)
      sum += all[size++].probability;
    ASSERT_EQ(tokens.size(), size) << topP;
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(tokens[i].token, all[i].token);
      EXPECT_NEAR(tokens[i].probability, all[i].probability / sum, 1e-6);
    }
  }
  for (double minP : {0.9, 0.5, 0.01}) {
    auto kept =
        std::ranges::count_if(all, [&](const auto &one) { return one.probability >= minP * all[0].probability; });
    EXPECT_EQ(std::ssize(distribution(manyLogits(), {.temperature = 1, .minP = minP})), kept) << minP;
  }
}

TEST(TokenAt, FindsTheTokenOfACumulativeProbability) {
  std::vector<TokenProbability> tokens = distribution(logits(), {.temperature = 1});
  EXPECT_EQ(tokenAt(tokens, 0), 1);
  EXPECT_EQ(tokenAt(tokens, 0.39), 1);
  EXPECT_EQ(tokenAt(tokens, 0.41), 2);
  EXPECT_EQ(tokenAt(tokens, 0.95), 3);
  EXPECT_EQ(tokenAt(tokens, 1), 3);
}

// Draws 40,000 tokens. Each count is within five standard deviations of the expected count.
TEST(SampleToken, FollowsTheDistribution) {
  Sampling sampling = {.temperature = 1, .seed = 11};
  std::array<int, 5> counts{};
  constexpr int draws = 40000;
  for (int draw = 0; draw < draws; ++draw)
    ++counts[static_cast<size_t>(sampleToken(logits(), sampling, static_cast<uint64_t>(draw)))];
  std::array<double, 5> table = {0.1, 0.4, 0.2, 0.1, 0.2};
  for (size_t token = 0; token < counts.size(); ++token)
    EXPECT_NEAR(counts[token], draws * table[token], 5 * std::sqrt(draws * table[token] * (1 - table[token])));
}

TEST(SampleToken, IsAFunctionOfSeedAndDraw) {
  auto text = [](uint64_t seed) {
    std::vector<int32_t> tokens;
    for (uint64_t draw = 0; draw < 64; ++draw)
      tokens.push_back(sampleToken(logits(), {.temperature = 1, .seed = seed}, draw));
    return tokens;
  };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
  EXPECT_NE(text(3), text(3 + (uint64_t{1} << 32)));
}

TEST(SampleToken, OfAVerySmallTemperatureIsTheBestToken) {
  for (double temperature : {1e-3, 1e-30, 1e-300})
    EXPECT_EQ(sampleToken(logits(), {.temperature = temperature, .seed = 5}, 0), 1);
}

TEST(ScoreToken, HasLogarithmsOfTheSoftmax) {
  TokenScore score = scoreToken(logits(), 3, 3);
  EXPECT_EQ(score.token, 3);
  EXPECT_NEAR(score.logProbability, std::log(0.1), 1e-6);
  ASSERT_EQ(score.best.size(), 3U);
  EXPECT_EQ(score.best[0].first, 1);
  EXPECT_NEAR(score.best[0].second, std::log(0.4), 1e-6);
  EXPECT_EQ(score.best[1].first, 2); // of equal tokens, the lower one first
  EXPECT_EQ(score.best[2].first, 4);
  EXPECT_TRUE(scoreToken(logits(), 0, 0).best.empty());
  EXPECT_EQ(scoreToken(logits(), 0, 20).best.size(), 5U); // the vocabulary has no more
}

// A model with weights that are not finite gives logits that cannot be compared. Sampling still follows one order.
TEST(Distribution, OfNumbersThatAreNotFiniteIsDefined) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  std::vector<float> some(1000, nan), none(1000, nan);
  some[3] = 1;
  some[7] = infinite;
  some[8] = -infinite;
  for (const Sampling &sampling : {Sampling{.temperature = 0}, Sampling{.temperature = 1},
                                   Sampling{.temperature = 1, .topK = 500}, Sampling{.temperature = 1, .topP = 0.5}}) {
    EXPECT_EQ(distribution(some, sampling).front().token, 7);
    EXPECT_EQ(sampleToken(some, sampling, 5), 7);
    EXPECT_EQ(distribution(none, sampling).front().token, 0);
    int32_t token = sampleToken(none, sampling, 5);
    EXPECT_TRUE(token >= 0 && token < 1000);
  }
  TokenScore score = scoreToken(some, 3, 20);
  EXPECT_EQ(score.best.size(), 20u);
  EXPECT_EQ(score.best[0].first, 7);
  EXPECT_EQ(score.best[1].first, 3);
  EXPECT_TRUE(std::isfinite(score.logProbability));
}

} // namespace
} // namespace espalier::rt
