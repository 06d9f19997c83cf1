// Tests errors as text and as JSON.
#include "messages/error_line.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

/// Returns what a call prints to standard error in the format.
template <typename Work> std::string printed(ErrorFormat format, Work work) {
  errorFormat() = format;
  testing::internal::CaptureStderr();
  work();
  errorFormat() = ErrorFormat::Text;
  return testing::internal::GetCapturedStderr();
}

TEST(ErrorLine, TextKeepsThePlace) {
  EXPECT_EQ(printed(ErrorFormat::Text, [] { printError("x.plan", "is cut; copy it again"); }),
            "x.plan: error: is cut; copy it again\n");
  EXPECT_EQ(printed(ErrorFormat::Text, [] { printErrorText("t.json:3: error: no list\n"); }),
            "t.json:3: error: no list\n");
}

TEST(ErrorLine, JsonSplitsPlaceMessageAndHint) {
  auto json = [](const char *text) {
    std::string line = printed(ErrorFormat::Json, [&] { printErrorText(text); });
    EXPECT_EQ(std::ranges::count(line, '\n'), 1) << line;
    return nlohmann::json::parse(line);
  };
  nlohmann::json cut = json("x.plan: error: is cut; copy it again");
  EXPECT_EQ(cut, (nlohmann::json{{"file", "x.plan"},
                                 {"line", 0},
                                 {"column", 0},
                                 {"severity", "error"},
                                 {"message", "is cut; copy it again"},
                                 {"hint", "copy it again"}}));
  nlohmann::json list = json("a b:c.json:3: error: no list: error: twice");
  EXPECT_EQ(list["file"], "a b:c.json");
  EXPECT_EQ(list["line"], 3);
  EXPECT_EQ(list["column"], 0);
  EXPECT_EQ(list["message"], "no list: error: twice");
  nlohmann::json key = json("r.yaml:7:9: warning: unknown key, did you mean 'seed'?");
  EXPECT_EQ(key["line"], 7);
  EXPECT_EQ(key["column"], 9);
  EXPECT_EQ(key["severity"], "warning");
  EXPECT_EQ(key["hint"], "did you mean 'seed'?");
  EXPECT_EQ(json("espalier run: error: a plan is wanted")["file"], "");
  EXPECT_EQ(json("two\nlines \xff")["message"], "two\nlines \xEF\xBF\xBD");
}

} // namespace
} // namespace espalier
