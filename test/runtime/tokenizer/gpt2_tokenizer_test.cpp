// Compares GPT-2's tokenizer with recorded ids and its scanner with the regular expression. Damaged files are refused.
#include "messages/data_error.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/gpt2_scanner.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/utf8.h"
#include "test/runtime/tokenizer/golden.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <random>

namespace espalier::rt {
namespace {

using namespace test;
using testing::ElementsAre;

TokenizerOptions gpt2Options() {
  TokenizerOptions options;
  options.kind = "gpt2";
  options.vocabFile = sharedData() + "gpt2_bpe/encoder.json";
  options.mergeFile = sharedData() + "gpt2_bpe/vocab.bpe";
  return options;
}

std::vector<std::string> pieces(const std::string &text) {
  Gpt2Scanner scanner;
  std::vector<std::string> result;
  for (size_t at = 0; at < text.size();) {
    size_t end = scanner.pieceEnd(text, at);
    result.push_back(text.substr(at, end - at));
    at = end;
  }
  return result;
}

TEST(Gpt2Scanner, CutsAsThePatternDoes) {
  EXPECT_THAT(pieces("It's  3 o'clock"), ElementsAre("It", "'s", " ", " 3", " o", "'", "clock"));
  EXPECT_THAT(pieces("we'll've 'store I'LL"), ElementsAre("we", "'ll", "'ve", " '", "store", " I", "'", "LL"));
  EXPECT_THAT(pieces("a\n\n b  "), ElementsAre("a", "\n\n", " b", "  "));
  EXPECT_THAT(pieces("  \u3000x"), ElementsAre("  ", "\u3000", "x"));
  EXPECT_THAT(pieces("x \u3000y"), ElementsAre("x", " ", "\u3000", "y"));
  EXPECT_THAT(pieces("\u00bd\u0663 \u00e9t\u00e9!?"), ElementsAre("\u00bd\u0663", " \u00e9t\u00e9", "!?"));
  EXPECT_THAT(pieces("e\u0301"), ElementsAre("e", "\u0301")); // a combining mark is not a letter
  EXPECT_THAT(pieces("\xff\xfe a"), ElementsAre("\xff\xfe", " a"));
}

TEST(Gpt2Tokenizer, RecordedCasesBothWays) {
  ESPALIER_NEEDS_FIXTURES();
  auto tokenizer = openTokenizer(gpt2Options());
  EXPECT_EQ(tokenizer->vocabSize(), 50257);
  EXPECT_EQ(tokenizer->eodToken(), 50256);
  std::istringstream lines(slurp(sharedData() + "golden/gpt2_bpe_cases.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    auto one = nlohmann::json::parse(line);
    std::string text = one["text"].get<std::string>();
    std::vector<int32_t> ids = tokenizer->encode(text);
    EXPECT_EQ(ids, one["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  EXPECT_EQ(cases, 10);
}

TEST(Gpt2Tokenizer, SpecialTokensInTextOnlyWhenAsked) {
  ESPALIER_NEEDS_FIXTURES();
  TokenizerOptions options = gpt2Options();
  EXPECT_EQ(openTokenizer(options)->encode("a<|endoftext|>").size(), 8U);
  options.specialTokens = true;
  EXPECT_THAT(openTokenizer(options)->encode("a<|endoftext|>"), ElementsAre(64, 50256));
}

TEST(Gpt2Tokenizer, AnyBytesComeBackUnchanged) {
  ESPALIER_NEEDS_FIXTURES();
  auto tokenizer = openTokenizer(gpt2Options());
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < round; ++i) {
      if (round % 3 == 0)
        text += static_cast<char>(random());
      else
        appendUtf8(random() % (round % 3 == 1 ? 0x500 : 0xD800), text);
    }
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(Gpt2Tokenizer, CacheAndLongWordsChangeNothing) {
  ESPALIER_NEEDS_FIXTURES();
  auto warm = openTokenizer(gpt2Options());
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    // Uses words around the limit of the cache (16 bytes) and of the short merge (48 bytes).
    std::string word;
    for (size_t i = 0, n = 1 + random() % 120; i < n; ++i)
      word += "abcdeinrst"[random() % 10];
    std::vector<int32_t> first = warm->encode(word), second = warm->encode(word);
    EXPECT_EQ(first, second);
    EXPECT_EQ(first, warm->clone()->encode(word));
    EXPECT_EQ(warm->decode(first), word);
  }
}

TEST(Gpt2Tokenizer, AMegabyteWithoutASpaceEnds) {
  ESPALIER_NEEDS_FIXTURES();
  auto tokenizer = openTokenizer(gpt2Options());
  std::string text(1000000, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(Gpt2Tokenizer, DamagedFilesAreRefusedWithTheirPlace) {
  Scratch scratch;
  TokenizerOptions options;
  options.kind = "gpt2";
  options.vocabFile = scratch.path("vocab.json");
  options.mergeFile = scratch.path("merges.txt");
  auto refusal = [&](const std::string &vocab, const std::string &merges) -> std::string {
    spit(options.vocabFile, vocab);
    spit(options.mergeFile, merges);
    try {
      openTokenizer(options);
    } catch (const DataError &error) {
      return error.what();
    }
    return "accepted";
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal("{", ""), HasSubstr("not JSON: parse error at line 1, column 2"));
  EXPECT_THAT(refusal("[]", ""), HasSubstr("no object"));
  EXPECT_THAT(refusal(R"({"a":"b"})", ""), HasSubstr("no integer id"));
  EXPECT_THAT(refusal(R"({"a":-1})", ""), HasSubstr("id -1"));
  EXPECT_THAT(refusal(R"({"a":2000000000})", ""), HasSubstr("id 2000000000"));
  EXPECT_THAT(refusal(R"({"a":0,"b":1})", "#version: 0.2\na b\n"), HasSubstr("merges.txt:2: error: "
                                                                             "merge 1 uses \"ab\""));
  EXPECT_THAT(refusal(R"({"a":0,"b":1})", "a  b"), HasSubstr("merges.txt:1: error: want two tokens"));
  EXPECT_THAT(refusal(R"({"a":0})", ""), HasSubstr("no token for byte"));
  EXPECT_THAT(refusal(std::string(100000, '['), ""), HasSubstr("not JSON"));
}

TEST(ByteLevel, MapsEveryByteAndBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte)
    all += static_cast<char>(byte);
  EXPECT_EQ(fromByteLevel(toByteLevel(all)), all);
  EXPECT_EQ(toByteLevel(" a"), "\u0120a");
  EXPECT_EQ(fromByteLevel("\u2581"), std::nullopt);
}

TEST(Utf8, RejectsOverlongFormsAndInvalidCharacters) {
  for (const char *bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8", "\xe2\x82", "\xff"})
    EXPECT_FALSE(decodeUtf8(bad, 0).isValid);
  for (char32_t good : {0x0U, 0x7fU, 0x80U, 0x7ffU, 0x800U, 0xffffU, 0x10000U, 0x10ffffU}) {
    std::string text;
    appendUtf8(good, text);
    EXPECT_TRUE(decodeUtf8(text, 0).isValid);
    EXPECT_EQ(decodeUtf8(text, 0).codePoint, good);
  }
}

TEST(NullTokenizer, TextIsIds) {
  auto tokenizer = makeNullTokenizer(100);
  EXPECT_THAT(tokenizer->encode(" 1 22\n99 "), ElementsAre(1, 22, 99));
  EXPECT_EQ(tokenizer->eodToken(), 99);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1, 2}), "1 2");
  for (const char *bad : {"100", "-1", "a", "1a", "99999999999"})
    EXPECT_THROW(tokenizer->encode(bad), DataError) << bad;
  EXPECT_THROW(makeNullTokenizer(0), DataError);
}

TEST(ByteTokenizer, IdsAreBytes) {
  auto tokenizer = makeByteTokenizer();
  EXPECT_THAT(tokenizer->encode("a\xff"), ElementsAre(97, 255));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{97, 256, 98}), "ab");
}

} // namespace
} // namespace espalier::rt
