// Tests the bounds of JSON texts from untrusted files and clients.
#include "runtime/checkpoint/json_text.h"
#include "runtime/json_bounds.h"

#include <gtest/gtest.h>
#include <string>

namespace espalier::rt {
namespace {

std::string nested(size_t levels, const std::string &open, const std::string &inside, char close) {
  std::string text;
  for (size_t i = 0; i < levels; ++i)
    text += open;
  return text + inside + std::string(levels, close);
}

TEST(JsonText, IsBoundedInDepth) {
  for (const auto &[open, close] : {std::pair("[", ']'), std::pair("{\"a\":", '}')}) {
    EXPECT_NO_THROW(parseShallow(nested(8, open, "1", close)));
    EXPECT_THROW(parseShallow(nested(9, open, "1", close)), nlohmann::json::exception);
    EXPECT_THROW(parseShallow(nested(1 << 20, open, "", ' ')), nlohmann::json::exception);
  }
}

// Depth is that of open brackets, not their number.
TEST(JsonText, HasAnyNumberOfElements) {
  std::string list = "{}", object = "\"0\":{}";
  for (int i = 1; i < 100'000; ++i) {
    list += ",{}";
    object += ",\"" + std::to_string(i) + "\":{}";
  }
  EXPECT_EQ(parseShallow("[" + list + "]").size(), 100'000U);
  EXPECT_EQ(parseShallow("{" + object + "}").size(), 100'000U);
}

TEST(JsonBounds, CountTheKeysOfEachObject) {
  JsonBounds bounds{.levels = 2, .keys = 2};
  EXPECT_TRUE(isWithinBounds(R"([{"a":1,"b":2},{"a":1,"b":2}])", bounds));
  EXPECT_FALSE(isWithinBounds(R"([{"a":1,"b":2,"c":3}])", bounds));
  EXPECT_FALSE(isWithinBounds(R"({"a":{"x":1},"a":1,"a":1})", bounds)) << "equal keys count";
  EXPECT_TRUE(isWithinBounds("[1, 2", bounds)) << "the parser reports that this is no JSON";
  EXPECT_TRUE(isWithinBounds("", bounds));
}

} // namespace
} // namespace espalier::rt
