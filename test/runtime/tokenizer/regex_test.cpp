// Patterns come from files of strangers: a pattern that is slow at every place of a text is refused within seconds,
// and one that is slow at a few long places is not.
#include "format/regex.h"
#include "messages/data_error.h"

#include <chrono>
#include <ctime>
#include <gtest/gtest.h>

namespace espalier::rt {
namespace {

/// Returns the number of matches in a text.
size_t countMatches(const Regex &pattern, std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    auto [begin, end] = pattern.find(text, at);
    if (begin == std::string_view::npos)
      break;
    at = std::max(end, at + 1);
  }
  return count;
}

TEST(Regex, FindsWords) {
  Regex words("t.json", R"(\p{L}+|\p{N}+)");
  EXPECT_EQ(words.find("ab 12", 0), std::pair(size_t(0), size_t(2)));
  EXPECT_EQ(words.find("ab 12", 2), std::pair(size_t(3), size_t(5)));
  EXPECT_EQ(words.find("ab 12", 5).first, std::string_view::npos);
}

TEST(Regex, PatternThatIsSlowEverywhereIsRefusedSoon) {
  Regex pattern("t.json", R"((?:a|aa)+!|.)");
  std::string text;
  for (int i = 0; i < 100'000; ++i)
    text += std::string(20, 'a') + " ";
  std::clock_t begin = std::clock();
  try {
    countMatches(pattern, text);
    FAIL() << "the pattern is accepted";
  } catch (const DataError &error) {
    EXPECT_NE(std::string(error.what()).find("the pattern is too slow: "), std::string::npos) << error.what();
  }
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 60);
}

TEST(Regex, LongMatchesOfAUsualPatternAreAccepted) {
  Regex pattern("t.json", R"(\s+(?!\S)|\s+|\S+)");
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += std::string(100'000, ' ') + "a";
  EXPECT_EQ(countMatches(pattern, text), 900u); // all spaces but the last, the last space, the letter
}

} // namespace
} // namespace espalier::rt
