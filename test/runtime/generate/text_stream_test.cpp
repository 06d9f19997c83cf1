// The text of a continuation is decode(prompt + new) minus decode(prompt), for every kind of tokenizer.
#include "runtime/generate/completion_answer.h"
#include "runtime/generate/text_stream.h"

#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

const std::string models = ESPALIER_SOURCE_DIR "/test/golden/tokenizers/";

std::unique_ptr<Tokenizer> openModel(const std::string &name) {
  TokenizerOptions options;
  options.kind = name.ends_with(".json") ? "hf" : "sentencepiece";
  options.modelFile = models + name;
  return openTokenizer(options);
}

std::string joined(TextStream &stream, std::span<const int32_t> ids) {
  std::string text;
  for (int32_t id : ids)
    text += stream.push(id);
  return text + stream.finish();
}

// The records come from the packages tokenizers and sentencepiece. A stream, one call, and one call per id agree.
TEST(TextStream, IsWhatThePackagesAdd) {
  std::ifstream lines(models + "continuations.jsonl");
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    nlohmann::json one = nlohmann::json::parse(line);
    auto tokenizer = openModel(one["model"].get<std::string>());
    auto prompt = one["prompt"].get<std::vector<int32_t>>(), ids = one["new"].get<std::vector<int32_t>>();
    TextStream stream(tokenizer.get(), prompt, {});
    EXPECT_EQ(joined(stream, ids), one["text"].get<std::string>()) << line;
    for (size_t k = 0; !one["pieces"].is_null() && k < ids.size(); ++k) {
      EXPECT_EQ(continuationOf(*tokenizer, prompt, std::span(ids).subspan(k, 1)).added(),
                one["pieces"][k].get<std::string>())
          << k << " of " << line;
      prompt.push_back(ids[k]);
    }
  }
  EXPECT_GT(cases, 90);
}

// With one token per byte, a character is returned after its last byte.
TEST(TextStream, ReturnsWholeCharacters) {
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  TextStream stream(bytes.get(), {}, {});
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xc3), "");
  EXPECT_EQ(stream.push(0xa9), "\xc3\xa9");
  EXPECT_EQ(stream.push(0xe2), "");
  EXPECT_EQ(stream.finish(), "\xe2");
}

// A character that the prompt begins belongs to the continuation. If nothing completes it, it belongs to none.
TEST(TextStream, CompletesTheCharacterOfThePrompt) {
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  const std::vector<int32_t> prompt = {'a', 0xe2, 0x82};
  EXPECT_EQ(textOfPrompt(*bytes, prompt), "a");
  TextStream stream(bytes.get(), prompt, {});
  EXPECT_EQ(stream.push(0xac), "\xe2\x82\xac");
  EXPECT_EQ(stream.push('b'), "b");
  TextStream none(bytes.get(), prompt, {}), other(bytes.get(), prompt, {});
  EXPECT_EQ(none.finish(), "");
  EXPECT_EQ(other.push('b'), "b");
}

TEST(TextStream, StopsInTheMiddleOfATokensText) {
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  TextStream stream(bytes.get(), {}, {"bc"});
  std::string text;
  for (char c : std::string("abcd"))
    text += stream.push(c);
  EXPECT_EQ(text + stream.finish(), "a");
  EXPECT_TRUE(stream.isStopped());
}

// A stop string may begin with the space between the prompt and the continuation.
TEST(TextStream, StopsAtTheSpaceBehindThePrompt) {
  auto tokenizer = openModel("chars.json");
  std::vector<int32_t> prompt = tokenizer->encode("thou"), ids = tokenizer->encode("art not");
  TextStream stream(tokenizer.get(), prompt, {" art"});
  EXPECT_EQ(joined(stream, ids), "");
  EXPECT_TRUE(stream.isStopped());
}

// The model's vocabulary may be larger than the tokenizer's.
TEST(TextStream, HasNoTextForIdsThatAreNoTokens) {
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  TextStream stream(bytes.get(), std::vector<int32_t>{'a', 999}, {});
  EXPECT_EQ(joined(stream, std::vector<int32_t>{1000, 'b', -1}), "b");
  std::unique_ptr<Tokenizer> ids = makeNullTokenizer(10);
  TextStream numbers(ids.get(), std::vector<int32_t>{1, 2}, {});
  EXPECT_EQ(joined(numbers, std::vector<int32_t>{3, 4}), " 3 4");
}

/// The choice of an answer to `body`, whose completion has `tokens`.
nlohmann::json choiceOf(Tokenizer &tokenizer, const char *body, const std::vector<int32_t> &tokens, bool isStream) {
  CompletionBody parsed = parseCompletionBody(body, &tokenizer);
  const std::vector<int32_t> &prompt = parsed.prompts[0].ids;
  Completion end;
  end.tokens = tokens;
  TextStream stream(&tokenizer, prompt, {});
  end.text = joined(stream, tokens);
  for (size_t k = 1; k < prompt.size(); ++k)
    end.promptScores.push_back({prompt[k], -1, {}});
  for (int32_t token : tokens)
    end.scores.push_back({token, -1, {}});
  CompletionAnswer answer({}, parsed, &tokenizer);
  std::string text = isStream ? answer.event(0, {end.text, tokens, end.scores, nullptr}) : answer.whole({&end, 1});
  return nlohmann::json::parse(text)["choices"][0];
}

// Offsets count the characters of the text of the choice.
TEST(CompletionAnswer, PlacesTokensInTheText) {
  auto tokenizer = openModel("chars.json");
  std::vector<int32_t> th = tokenizer->encode("th");
  ASSERT_EQ(th.size(), 1U);
  const char *body = R"({"prompt": "th", "logprobs": 0, "echo": true})";
  nlohmann::json echoed = choiceOf(*tokenizer, body, {th[0], th[0]}, /*isStream=*/false);
  EXPECT_EQ(echoed["text"], "th th th");
  EXPECT_EQ(echoed["logprobs"]["tokens"], (nlohmann::json{"th", " th", " th"}));
  EXPECT_EQ(echoed["logprobs"]["text_offset"], (nlohmann::json{0, 2, 5}));
  for (bool isStream : {false, true}) {
    nlohmann::json own = choiceOf(*tokenizer, R"({"prompt": "th", "logprobs": 0})", {th[0], th[0]}, isStream);
    EXPECT_EQ(own["text"], " th th");
    EXPECT_EQ(own["logprobs"]["tokens"], (nlohmann::json{" th", " th"}));
    EXPECT_EQ(own["logprobs"]["text_offset"], (nlohmann::json{0, 3}));
  }
}

// Bytes of one character count as one character.
TEST(CompletionAnswer, CountsACharacterOfSeveralTokensOnce) {
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  nlohmann::json choice =
      choiceOf(*bytes, R"({"prompt": [97, 226], "logprobs": 0})", {0x82, 0xac, 'b', 'c'}, /*isStream=*/false);
  EXPECT_EQ(choice["text"], "\xe2\x82\xac"
                            "bc");
  EXPECT_EQ(choice["logprobs"]["text_offset"], (nlohmann::json{0, 0, 1, 2}));
}

// The text of a prompt may lack the token that begins a document.
TEST(CompletionAnswer, PlacesTokensBehindAFrame) {
  TokenizerOptions options;
  options.kind = "hf";
  options.modelFile = models + "split.json";
  options.specialTokens = true;
  auto tokenizer = openTokenizer(options);
  nlohmann::json choice =
      choiceOf(*tokenizer, R"({"prompt": "a", "logprobs": 0, "echo": true})", {tokenizer->encode("b")[1]}, false);
  EXPECT_EQ(choice["logprobs"]["tokens"], (nlohmann::json{"<s>", "a", "</s>", "b"}));
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["logprobs"]["text_offset"].back(), 1);
}

} // namespace
} // namespace espalier::rt
