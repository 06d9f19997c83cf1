// Stop strings and characters may arrive in pieces of any size.
#include "runtime/generate/stop.h"

#include <gmock/gmock.h>

#include <random>

namespace espalier::rt {
namespace {

std::string joined(StopFilter &filter, const std::vector<std::string> &pieces) {
  std::string text;
  for (const std::string &piece : pieces)
    text += filter.push(piece);
  return text + filter.finish();
}

TEST(StopFilter, FindsAStopAcrossPieces) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.push("one E"), "one ");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("D two"), "");
  EXPECT_TRUE(filter.isStopped());
  EXPECT_EQ(filter.push("three"), "");
}

TEST(StopFilter, ReturnsTextThatOnlyBeginsLikeAStop) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.push("E"), "");
  EXPECT_EQ(filter.push("NE"), "EN");
  EXPECT_EQ(filter.push("X"), "EX");
  EXPECT_FALSE(filter.isStopped());
}

TEST(StopFilter, ReturnsHeldTextAtTheEnd) {
  StopFilter filter({"END"});
  EXPECT_EQ(joined(filter, {"text EN"}), "text EN");
}

TEST(StopFilter, EndsBeforeTheFirstOfSeveralStops) {
  StopFilter filter({"later", "now", ""});
  EXPECT_EQ(joined(filter, {"not now, later"}), "not ");
}

// For any pieces, the result contains no stop string and ends at or after the first stop of the whole text.
TEST(StopFilter, DoesNotDependOnThePieces) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string whole;
    for (int i = 0; i < 24; ++i)
      whole += static_cast<char>('a' + random() % 2);
    std::vector<std::string> pieces, stops = {"abba", "aab", "bbbbb"};
    for (size_t at = 0; at < whole.size();) {
      size_t length = 1 + random() % 4;
      pieces.push_back(whole.substr(at, length));
      at += length;
    }
    size_t first = whole.size();
    for (const std::string &stop : stops)
      first = std::min(first, whole.find(stop));
    StopFilter filter(stops);
    // If two stops overlap, the stop that ends first decides, although the other may begin earlier.
    std::string text = joined(filter, pieces);
    EXPECT_TRUE(whole.starts_with(text));
    EXPECT_GE(text.size(), first);
    for (const std::string &stop : stops)
      EXPECT_EQ(text.find(stop), std::string::npos) << whole;
  }
}

TEST(WholeCharacters, HoldsBackIncompleteCharacters) {
  EXPECT_EQ(wholeCharacters("abc"), 3U);
  EXPECT_EQ(wholeCharacters("ab\xc3"), 2U);
  EXPECT_EQ(wholeCharacters("ab\xc3\xa9"), 4U);
  EXPECT_EQ(wholeCharacters("a\xf0\x9f\x98"), 1U);
  EXPECT_EQ(wholeCharacters("a\xf0\x9f\x98\x80"), 5U);
  EXPECT_EQ(wholeCharacters("\x80\x80\x80\x80"), 4U); // no character begins here
  EXPECT_EQ(wholeCharacters(""), 0U);
}

} // namespace
} // namespace espalier::rt
