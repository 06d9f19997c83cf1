// Compares the automaton of JSON with a parser, and constrained decoding with the texts that a grammar has.
#include "runtime/generate/grammar.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

namespace espalier::rt {
namespace {

enum class Read { No, Begun, Whole };

Read read(std::string_view text) {
  JsonAutomaton json;
  for (char one : text)
    if (!json.push(static_cast<uint8_t>(one)))
      return Read::No;
  return json.isComplete() ? Read::Whole : Read::Begun;
}

/// Returns whether a parser takes the text; nothing for a number that no double holds, where the parser stops.
std::optional<bool> isObject(const std::string &text) {
  try {
    return nlohmann::json::parse(text).is_object();
  } catch (const nlohmann::json::out_of_range &) {
    return std::nullopt;
  } catch (const nlohmann::json::exception &) {
    return false;
  }
}

TEST(JsonAutomaton, ReadsObjects) {
  for (const char *text :
       {"{}", " {\n} ", R"({"a": [1, -0.5e+3, 0, 1E9, true, false, null, "x\n\u00e9\ud83d\ude00"], "b": {"c": []}})",
        "{\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\":\t[{},[[]]]}"}) {
    std::string_view trimmed = text;
    while (trimmed.ends_with(' '))
      trimmed.remove_suffix(1);
    EXPECT_EQ(read(trimmed), Read::Whole) << text;
    for (size_t size = 0; size < trimmed.size(); ++size)
      EXPECT_EQ(read(trimmed.substr(0, size)), Read::Begun) << text << " until " << size;
  }
}

TEST(JsonAutomaton, LeavesWhatIsNoObject) {
  for (const char *text : {"[",
                           "1",
                           "\"",
                           "x",
                           "{]",
                           "{,",
                           "{a",
                           "{\"a\",",
                           "{\"a\":,",
                           "{\"a\":1,}",
                           "{\"a\":[1,]",
                           "{\"a\":01",
                           "{\"a\":-a",
                           "{\"a\":1.}",
                           "{\"a\":1.e",
                           "{\"a\":1e}",
                           "{\"a\":1e+}",
                           "{\"a\":+",
                           "{\"a\":.",
                           "{\"a\":tru}",
                           "{\"a\":nan",
                           "{\"a\n",
                           "{\"a\\x",
                           "{\"\\u12g",
                           "{\"\\ud83dx",
                           "{\"\\ud83d\\n",
                           "{\"\\ud83d\\u0",
                           "{\"\\ud83d\\ud8",
                           "{\"\\uDc",
                           "{\"\xff",
                           "{\"\xc0\x80",
                           "{\"\xed\xa0",
                           "{\"\xf4\x90",
                           "{\"\xe2\x82\"",
                           "{}x",
                           "{} ",
                           "{\"a\":1}}"})
    EXPECT_EQ(read(text), Read::No) << text;
}

TEST(JsonAutomaton, BoundsLevelsAndWhiteSpace) {
  std::string lists(JsonAutomaton::mostLevels - 1, '[');
  EXPECT_EQ(read("{\"a\":" + lists), Read::Begun);
  EXPECT_EQ(read("{\"a\":" + lists + "["), Read::No);
  EXPECT_EQ(read("{\"a\":" + lists + std::string(lists.size(), ']') + "}"), Read::Whole);
  EXPECT_EQ(read(std::string(JsonAutomaton::mostSpaces, ' ') + "{" + std::string(JsonAutomaton::mostSpaces, '\n')),
            Read::Begun);
  EXPECT_EQ(read("{" + std::string(JsonAutomaton::mostSpaces + 1, ' ')), Read::No);
}

// Texts that differ from a valid one in a few bytes.
TEST(JsonAutomaton, AgreesWithAParser) {
  const std::string valid = R"({"k": [-12.50e-3, 0, true, null, "a\u00e9\ud83d\ude00\\"], "o": {"x": {}, "y": false}})";
  const std::string bytes = "{}[]\",:\\ud8c0123456789eE+-.truefalsn \n\xc3\xa9\xe2\x82";
  std::mt19937 random(5);
  int whole = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = valid;
    for (size_t change = random() % 3 + 1; change > 0; --change) {
      size_t at = random() % text.size();
      switch (random() % 3) {
      case 0:
        text[at] = bytes[random() % bytes.size()];
        break;
      case 1:
        text.insert(at, 1, bytes[random() % bytes.size()]);
        break;
      default:
        text.erase(at, random() % 4 + 1);
      }
      if (text.empty())
        text = "{";
    }
    while (text.ends_with(' ') || text.ends_with('\n'))
      text.pop_back();
    bool isWhole = read(text) == Read::Whole;
    ASSERT_EQ(isWhole, isObject(text).value_or(isWhole)) << text;
    whole += isWhole;
  }
  EXPECT_GT(whole, 100);
}

TEST(Grammar, HasWordsAndObjects) {
  Grammar grammar({{{"<f>", "<f2>", "<g>"}}, {}, {{"!"}}});
  auto reads = [&](std::string_view text) {
    Grammar::Place place;
    return !grammar.push(place, text) ? Read::No : grammar.isComplete(place) ? Read::Whole : Read::Begun;
  };
  EXPECT_EQ(reads("<f>{\"a\": 1}!"), Read::Whole);
  EXPECT_EQ(reads("<f2>{}!"), Read::Whole);
  EXPECT_EQ(reads("<g> {}"), Read::Begun);
  for (const char *text : {"<h", "<f3", "<f2{", "<f>[", "<f>{}?", "<f>{}!!", "{"})
    EXPECT_EQ(reads(text), Read::No) << text;
}

/// A tokenizer of given texts. Those that begin with <| are marks.
class Words final : public Tokenizer {
public:
  explicit Words(std::vector<std::string> words) : words(std::move(words)) {}
  void encode(std::string_view, std::vector<int32_t> &) override {}
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (int32_t id : ids)
      text += markOf(id).empty() ? words[static_cast<size_t>(id)] : "";
    return text;
  }
  int64_t vocabSize() const override { return std::ssize(words); }
  int32_t eodToken() const override { return 0; }
  std::string markOf(int32_t id) const override {
    const std::string &word = words[static_cast<size_t>(id)];
    return word.starts_with("<|") ? word : "";
  }
  std::unique_ptr<Tokenizer> clone() const override { return std::make_unique<Words>(words); }

private:
  std::vector<std::string> words;
};

TEST(TokenBytes, ForbidTheTokensThatLeaveTheGrammar) {
  const std::vector<std::string> words = {"{}",   "a",   "{", "}",     "{\"a", "{\"ab\": ", "\"",     "\":", "[",
                                          "[{}]", "]}x", "1", "<|m|>", "{x",   "{\"a{",     "{\"ab}", "]"};
  Words tokenizer(words); // token 0 ends a document
  TokenBytes bytes(tokenizer);
  EXPECT_EQ(bytes.bytesOf(5), "{\"ab\": ");
  EXPECT_EQ(bytes.bytesOf(0), "");
  EXPECT_EQ(bytes.bytesOf(100), "");
  auto allowed = [&](const Grammar &grammar, std::string_view text) {
    Grammar::Place place;
    EXPECT_TRUE(grammar.push(place, text)) << text;
    std::vector<float> logits(words.size() + 2, 1.0F); // a model may have more tokens than a tokenizer
    logits[2] = std::numeric_limits<float>::quiet_NaN();
    bool hasToken = bytes.forbid(grammar, place, logits);
    std::vector<std::string> left;
    for (size_t token = 0; token < logits.size(); ++token)
      if (logits[token] > std::numeric_limits<float>::lowest())
        left.push_back(words.at(token));
    EXPECT_EQ(hasToken, !left.empty());
    return left;
  };
  auto json = jsonObjectGrammar();
  EXPECT_THAT(allowed(*json, ""), testing::UnorderedElementsAre("{", "{\"a", "{\"ab\": ", "{\"a{", "{\"ab}"));
  EXPECT_THAT(allowed(*json, "{"), testing::UnorderedElementsAre("}", "\"", "\":"));
  EXPECT_THAT(allowed(*json, "{\"a\":"), testing::UnorderedElementsAre("{", "{\"a", "{\"ab\": ", "{\"a{", "{\"ab}",
                                                                       "\"", "\":", "[", "[{}]", "1"));
  EXPECT_THAT(allowed(*json, "{\"a\":[1"), testing::UnorderedElementsAre("1", "]"));
  EXPECT_THAT(allowed(*json, "{\"a\\"), testing::UnorderedElementsAre("\"", "\":"));
  EXPECT_THAT(allowed(*json, "{\"a\":t"), testing::IsEmpty());
  Grammar marked({{{"<|m|>"}}, {}});
  EXPECT_THAT(allowed(marked, ""), testing::UnorderedElementsAre("<|m|>"));
  EXPECT_THAT(allowed(marked, "<|m|>{\""), testing::Not(testing::Contains("<|m|>")));
}

} // namespace
} // namespace espalier::rt
