// Tests tokenizer.json and tokenizer.model files. Ids, special tokens and decoding must equal those of the published
// packages. Also tests refused files and the trainer.
#include "format/regex.h"
#include "messages/data_error.h"
#include "runtime/tokenizer/tiktoken.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/train_bpe.h"
#include "runtime/tokenizer/unicode_normal.h"
#include "runtime/utf8.h"
#include "test/runtime/tokenizer/golden.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <set>

namespace espalier::rt {
namespace {

using namespace test;
using testing::HasSubstr;

const std::string models = ESPALIER_SOURCE_DIR "/test/golden/tokenizers/";

TokenizerOptions optionsFor(const std::string &file) {
  TokenizerOptions options;
  options.kind = file.ends_with(".json") ? "hf" : "sentencepiece";
  options.modelFile = file;
  return options;
}

class ModelFile : public testing::TestWithParam<const char *> {};

TEST_P(ModelFile, IdsFramesAndTextsAsRecorded) {
  TokenizerOptions options = optionsFor(models + GetParam());
  auto plain = openTokenizer(options);
  options.specialTokens = options.kind == "hf"; // the records of sentencepiece have control tokens as plain text
  options.addBos = options.kind == "sentencepiece";
  auto framed = openTokenizer(options);
  std::istringstream lines(slurp(models + GetParam() + ".cases.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    auto one = nlohmann::json::parse(line);
    std::string text = one["text"].get<std::string>();
    std::vector<int32_t> want = one["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(plain->encode(text), want) << text;
    EXPECT_EQ(plain->clone()->encode(text), want) << text;
    EXPECT_EQ(framed->encode(text), one["framed"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(plain->decode(want), one["decoded"].get<std::string>()) << text;
  }
  EXPECT_GE(cases, 15);
  EXPECT_THROW(plain->decode(std::vector<int32_t>{1 << 30}), DataError);
  EXPECT_THROW(plain->decode(std::vector<int32_t>{-1}), DataError);
  EXPECT_EQ(plain->eodToken(), std::string(GetParam()).starts_with("wordpiece") ? -1 : 2);
}

INSTANTIATE_TEST_SUITE_P(Forms, ModelFile,
                         testing::Values("split.json", "prefixed.json", "chars.json", "metaspace.json", "bytes.model",
                                         "rules.model", "unigram.json", "unigram_bytes.json", "unigram.model",
                                         "unigram_bytes.model", "wordpiece.json", "wordpiece_cased.json"));

// The chats of Llama 2 have control tokens in their text; the text between two tokens is encoded on its own.
TEST(SentencePieceModel, FindsControlTokensIfAsked) {
  TokenizerOptions options = optionsFor(models + "bytes.model");
  auto plain = openTokenizer(options);
  options.specialTokens = true;
  auto special = openTokenizer(options);
  std::vector<int32_t> want = {1};
  plain->encode("[INST] a [/INST] b ", want);
  want.push_back(2);
  want.push_back(1);
  plain->encode("[INST] c", want);
  EXPECT_EQ(special->encode("<s>[INST] a [/INST] b </s><s>[INST] c"), want);
  EXPECT_EQ(special->clone()->encode("<s></s>"), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(special->encode(""), (std::vector<int32_t>()));
  EXPECT_GT(plain->encode("<s>").size(), 1U);
}

TokenizerOptions ranksIn(const std::string &file, const std::string &pattern = "") {
  TokenizerOptions options;
  options.kind = "tiktoken";
  options.modelFile = file;
  options.pattern = pattern;
  return options;
}

/// Expects the recorded ids for each line of a file of cases. `encodings` counts the patterns.
void expectTiktokenCases(const std::string &file, size_t encodings) {
  Scratch scratch;
  std::istringstream lines(slurp(models + file + ".cases.jsonl"));
  std::set<std::string> seen;
  std::unique_ptr<Tokenizer> plain, special, exported;
  for (std::string line; std::getline(lines, line);) {
    auto one = nlohmann::json::parse(line);
    if (std::string encoding = one.value("encoding", ""); seen.insert(encoding).second) {
      TokenizerOptions options = ranksIn(models + file, encoding);
      plain = openTokenizer(options);
      if (encoding.empty()) { // the ids of the other special tokens belong to much larger files
        spit(scratch.path("tokenizer.json"), tiktokenAsTokenizerJson(options));
        exported = openTokenizer(optionsFor(scratch.path("tokenizer.json")));
      }
      options.specialTokens = true;
      options.addBos = encoding.empty();
      special = openTokenizer(options);
    }
    std::string text = one["text"];
    EXPECT_EQ(plain->encode(text), one["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(special->encode(text), one["framed"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(plain->decode(plain->encode(text)), text);
    if (std::vector<int32_t> ids = special->encode(text); exported)
      EXPECT_EQ(exported->encode(text), std::vector<int32_t>(ids.begin() + 1, ids.end())) << text;
  }
  EXPECT_EQ(seen.size(), encodings);
}

TEST(Tiktoken, IdsAsRecordedForEachEncoding) { expectTiktokenCases("small.tiktoken", 6); }

TEST(Tiktoken, TekkenHasSpecialTokensFirst) {
  expectTiktokenCases("tekken.json", 1);
  auto tekken = openTokenizer(ranksIn(models + "tekken.json"));
  EXPECT_EQ(tekken->eodToken(), 2);
  EXPECT_EQ(tekken->markOf(3), "[INST]");
  EXPECT_EQ(tekken->markOf(4), "<SPECIAL_4>");
  EXPECT_EQ(tekken->vocabSize(), 385);
}

/// Returns the error for a rank file, or "accepted".
std::string tiktokenRefusal(const std::string &bytes, const std::string &pattern = "qwen") {
  Scratch scratch;
  spit(scratch.path("ranks"), bytes);
  try {
    openTokenizer(ranksIn(scratch.path("ranks"), pattern));
  } catch (const DataError &error) {
    return error.what();
  }
  return "accepted";
}

TEST(Tiktoken, DamagedFilesAreRefused) {
  std::string whole = slurp(models + "small.tiktoken");
  EXPECT_EQ(tiktokenRefusal(whole), "accepted");
  EXPECT_EQ(tiktokenRefusal(whole, R"(\p{L}+|\P{L})"), "accepted");
  EXPECT_THAT(tiktokenRefusal(whole, ""), HasSubstr("420 ranks are of no known encoding; give --tiktoken-pattern"));
  EXPECT_THAT(tiktokenRefusal(whole.substr(5)), HasSubstr("want a base64 text, a space and a rank"));
  EXPECT_THAT(tiktokenRefusal("AA== 1\n"), HasSubstr(":1: error: a token of rank 1, want the next rank, 0"));
  EXPECT_THAT(tiktokenRefusal("AA== 0\n"), HasSubstr("a byte has no rank"));
  EXPECT_THAT(tiktokenRefusal("AA== 0\nAA== 1\n"), HasSubstr("rank 1 repeats the bytes"));
  EXPECT_THAT(tiktokenRefusal(" 0\n"), HasSubstr("a token of 0 bytes"));
  EXPECT_THAT(tiktokenRefusal("A 0\n"), HasSubstr("want a base64 text"));
  auto tekken = nlohmann::json::parse(slurp(models + "tekken.json"));
  tekken["config"]["default_vocab_size"] = 1 << 30;
  EXPECT_THAT(tiktokenRefusal(tekken.dump()), HasSubstr("default_vocab_size 1073741824 is not the sum"));
  tekken["config"]["default_vocab_size"] = 300;
  tekken["vocab"][7]["token_bytes"] = "?";
  EXPECT_THAT(tiktokenRefusal(tekken.dump()), HasSubstr("entry 7 of \"vocab\": token_bytes is not base64"));
  tekken["special_tokens"][1]["token_str"] = "";
  tekken["vocab"][7]["token_bytes"] = "Bw==";
  EXPECT_EQ(tiktokenRefusal(tekken.dump()), "accepted");
  TokenizerOptions begins = ranksIn(models + "small.tiktoken", "qwen");
  begins.addBos = true;
  EXPECT_THROW(openTokenizer(begins), DataError);
  begins.addBos = false;
  begins.eodText = "<none>";
  EXPECT_THROW(openTokenizer(begins), DataError);
  EXPECT_THROW(openTokenizer(ranksIn("")), DataError);
}

/// Returns a tokenizer.json with one step. Byte tokens show the output of a normalizer. One unknown token per word
/// shows where a pre-tokenizer cuts.
nlohmann::json stepModel(const nlohmann::json &one) {
  nlohmann::json vocabulary = {{"<unk>", 0}};
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[fmt::format("<0x{:02X}>", byte)] = byte + 1;
  return {{"normalizer", one["normalizer"]},
          {"pre_tokenizer", one["pre_tokenizer"]},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", one["byte_fallback"]},
            {"vocab", vocabulary},
            {"merges", nlohmann::json::array()}}}};
}

/// Returns the digest of the ids of "a" and each code point, 512 at a time, as make_step_cases.py computes it.
std::string digestOfEveryCharacter(Tokenizer &tokenizer) {
  std::string text;
  std::vector<int32_t> ids;
  int count = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000)
      continue;
    text += 'a';
    appendUtf8(c, text);
    if (++count % 512 == 0) {
      tokenizer.encode(text, ids);
      text.clear();
    }
  }
  tokenizer.encode(text, ids);
  return digestOf(std::span<const int32_t>(ids));
}

// Tests every code point because Unicode tables differ between libraries.
TEST(HfTokenizer, StepsGiveWhatThePublishedOnesGive) {
  Scratch scratch;
  std::istringstream lines(slurp(models + "steps.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(lines, line); ++steps) {
    auto one = nlohmann::json::parse(line);
    spit(scratch.path("tokenizer.json"), stepModel(one).dump());
    auto tokenizer = openTokenizer(optionsFor(scratch.path("tokenizer.json")));
    for (size_t i = 0; i < one["texts"].size(); ++i)
      EXPECT_EQ(tokenizer->encode(one["texts"][i].get<std::string>()), one["ids"][i].get<std::vector<int32_t>>())
          << one["name"] << one["texts"][i];
    EXPECT_EQ(digestOfEveryCharacter(*tokenizer), one["every"].get<std::string>()) << one["name"];
  }
  EXPECT_GT(steps, 30);
}

TEST(NormalForm, MemoryAndTimeAreLinear) {
  // An insertion sort would need 10^11 steps for marks in falling order.
  std::string marks = "a";
  for (int i = 0; i < 300000; ++i)
    marks += i % 2 ? "\u0316" : "\u0301";
  std::string ordered = toNormalForm(marks, NormalForm::nfd);
  EXPECT_EQ(ordered.size(), marks.size());
  EXPECT_EQ(ordered.substr(1, 4), "\u0316\u0316");
  std::string longest;
  for (int i = 0; i < 1000; ++i)
    longest += "\ufdfa";
  EXPECT_EQ(toNormalForm(longest, NormalForm::nfkd).size(), 11 * longest.size());
  EXPECT_EQ(toNormalForm("e\u0301\xff\u0301\xe4", NormalForm::nfc), "\u00e9\xff\u0301\xe4");
  EXPECT_EQ(toLowerCase("A\xff\xc4\u0130"), "a\xff\xc4i\u0307");
}

/// Returns the error for a tokenizer.json with the value at `pointer` (a JSON pointer) replaced, or "accepted".
std::string refusalWith(const std::string &pointer, const std::string &value,
                        const std::string &model = "metaspace.json") {
  Scratch scratch;
  auto json = nlohmann::json::parse(slurp(models + model));
  json[nlohmann::json::json_pointer(pointer)] = nlohmann::json::parse(value);
  spit(scratch.path("tokenizer.json"), json.dump());
  try {
    openTokenizer(optionsFor(scratch.path("tokenizer.json")))->encode("some text");
  } catch (const DataError &error) {
    return error.what();
  }
  return "accepted";
}

TEST(HfTokenizer, RejectsUnsupportedPartsByName) {
  EXPECT_THAT(refusalWith("/model/type", "\"WordLevel\""), HasSubstr("type WordLevel"));
  EXPECT_THAT(refusalWith("/model/type", "\"Unigram\""), HasSubstr("no list of token texts and scores"));
  EXPECT_THAT(refusalWith("/model/vocab/3", "[1, 2]", "unigram.json"), HasSubstr("token 3 is no pair"));
  EXPECT_THAT(refusalWith("/model/unk_id", "4000", "unigram.json"), HasSubstr("unk_id is 4000"));
  EXPECT_THAT(refusalWith("/model", R"({"type":"Unigram","vocab":[["a",0]]})"),
              HasSubstr("no unk_id and no token for"));
  EXPECT_THAT(refusalWith("/model/vocab/3/0", '"' + std::string(1025, 'x') + '"', "unigram.json"),
              HasSubstr("token 3 has 1025 bytes, at most 1024 are read"));
  EXPECT_THAT(refusalWith("/normalizer", R"({"type":"Precompiled","precompiled_charsmap":"A"})"), HasSubstr("base64"));
  EXPECT_THAT(refusalWith("/normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})"),
              HasSubstr("claims a trie"));
  EXPECT_THAT(refusalWith("/model/unk_token", "\"\"", "wordpiece.json"), HasSubstr("without unk_token"));
  EXPECT_THAT(refusalWith("/model/dropout", "0.1"), HasSubstr("dropout"));
  EXPECT_THAT(refusalWith("/model/end_of_word_suffix", "\"</w>\""), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(refusalWith("/model/unk_token", "\"none\""), HasSubstr("unk_token \"none\""));
  EXPECT_THAT(refusalWith("/model/unk_token", "3"), HasSubstr("holds number"));
  EXPECT_THAT(refusalWith("/model/merges", "[\"ab\"]"), HasSubstr("no space"));
  EXPECT_THAT(refusalWith("/model/merges", "[[1,2]]"), HasSubstr("neither"));
  EXPECT_THAT(refusalWith("/model/merges", "[[\"\u00e9\",\"b\"]]"), HasSubstr("not in the vocabulary"));
  EXPECT_THAT(refusalWith("/model", "[]"), HasSubstr("no \"model\" field"));
  EXPECT_THAT(refusalWith("/normalizer", R"({"type":"Unknown"})"), HasSubstr("\"Unknown\" is not read"));
  EXPECT_THAT(refusalWith("/pre_tokenizer", R"({"type":"UnicodeScripts"})"), HasSubstr("UnicodeScripts"));
  for (const char *pattern : {"[a[bc]]", "[a-c&&b]", "(?m)a", "\\\\p{L"})
    EXPECT_THAT(
        refusalWith("/pre_tokenizer",
                    fmt::format(R"({{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated"}})", pattern)),
        HasSubstr("is not read"))
        << pattern;
  EXPECT_THAT(refusalWith("/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})"),
              HasSubstr("pattern at character"));
  EXPECT_THAT(refusalWith("/pre_tokenizer", R"({"type":"Split","pattern":{"String":"a"},"behavior":"x"})"),
              HasSubstr("behavior \"x\""));
  EXPECT_THAT(refusalWith("/decoder", R"({"type":"CTC"})"), HasSubstr("decoder \"CTC\""));
  EXPECT_THAT(refusalWith("/post_processor", R"({"type":"BertProcessing"})"), HasSubstr("\"cls\" is no pair"));
  EXPECT_THAT(refusalWith("/post_processor", R"({"type":"Other"})"), HasSubstr("\"Other\" is not read"));
  EXPECT_THAT(refusalWith("/added_tokens/0/id", "99999999"), HasSubstr("id 99999999"));
  EXPECT_EQ(refusalWith("/model/dropout", "null"), "accepted");
}

TEST(HfTokenizer, StepsThatMultiplyTheTextAreRefused) {
  std::string steps;
  for (int i = 0; i < 60; ++i)
    steps += std::string(i ? "," : "") + R"({"type":"Replace","pattern":{"String":"e"},"content":"ee"})";
  EXPECT_THAT(refusalWith("/normalizer", R"({"type":"Sequence","normalizers":[)" + steps + "]}"), HasSubstr("bytes"));
}

TEST(HfTokenizer, DeepNestingIsRefused) {
  std::string deep = R"({"type":"Digits"})";
  for (int i = 0; i < 40; ++i)
    deep = R"({"type":"Sequence","pretokenizers":[)" + deep + "]}";
  EXPECT_THAT(refusalWith("/pre_tokenizer", deep), HasSubstr("\"Sequence\" is not read"));
}

TEST(SentencePiece, DamagedModelsAreRefused) {
  Scratch scratch;
  std::string chars = slurp(models + "unigram.model");
  chars[chars.find("\x18\x01", chars.size() / 2) + 1] = 4; // the model type
  spit(scratch.path("m.model"), chars);
  EXPECT_THROW(openTokenizer(optionsFor(scratch.path("m.model"))), DataError);
  std::string whole = slurp(models + "bytes.model");
  int refused = 0;
  for (size_t size = 0; size < whole.size(); size += 7) {
    spit(scratch.path("m.model"), whole.substr(0, size));
    try {
      // A file that is cut between two pieces still parses. Then either special ids or bytes are missing, or encoding
      // works.
      openTokenizer(optionsFor(scratch.path("m.model")))->encode("text \x01");
    } catch (const DataError &) {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(whole.size() / 7) * 9 / 10);
}

TEST(Regex, AnswersPlacesAndEndsHostilePatterns) {
  Regex regex("file", "\\s+(?!\\S)|\\p{L}+");
  EXPECT_EQ(regex.find("ab  c", 1), (std::pair<size_t, size_t>{1, 2}));
  EXPECT_EQ(regex.find("12", 0).first, std::string::npos);
  EXPECT_THROW(Regex("file", "(?<"), DataError);
  Regex hostile("file", "(a+)+[bc]");
  EXPECT_THROW(hostile.find(std::string(5000, 'a'), 0), DataError);
  EXPECT_EQ(regex
                .find("\xff\xff"
                      "a",
                      0)
                .first,
            2U);
}

TEST(TrainBpe, MostFrequentPairFirstAndSmallerIdsAmongEquals) {
  WordCounts words;
  words.add("ab ab ab cd cd");
  TrainBpeOptions options;
  options.vocabSize = 261;
  TrainedBpe trained = trainBpe(words, options);
  ASSERT_EQ(trained.tokens.size(), 261U);
  EXPECT_EQ(trained.tokens[0], "<|endoftext|>");
  EXPECT_EQ(trained.tokens[257], "ab");
  EXPECT_EQ(trained.tokens[258],
            "cd"); // as frequent as "Ġ ab" and "Ġ cd", but with a smaller pair of ids
  options.minFrequency = 3;
  EXPECT_EQ(trainBpe(words, options).merges.size(), 1U);
  options.vocabSize = 256;
  EXPECT_THROW(trainBpe(words, options), DataError);
}

/// Without a limit, merges of equal letters double a token until it is as long as the text.
TEST(TrainBpe, LongWordsAreSplit) {
  WordCounts words;
  words.add(std::string(10 * WordCounts::longestWord + 7, 'x') + " y");
  EXPECT_EQ(words.counts().size(), 3U);
  EXPECT_EQ(words.counts().find(std::string(WordCounts::longestWord, 'x'))->second, 10);
  EXPECT_EQ(words.counts().find("xxxxxxx")->second, 1);
  EXPECT_EQ(words.counts().find(" y")->second, 1);
  TrainBpeOptions options;
  options.vocabSize = 1000;
  for (const std::string &token : trainBpe(words, options).tokens)
    EXPECT_LE(token.size(), WordCounts::longestWord);
}

TEST(TrainBpe, TheFileOpensAndRoundTrips) {
  Scratch scratch;
  WordCounts words;
  std::string text = "the cat sat on the mat, the cat ate \"it\" \\ \u4e2d\u6587\n";
  words.add(text);
  TrainBpeOptions options;
  options.vocabSize = 290;
  spit(scratch.path("tokenizer.json"), toTokenizerJson(trainBpe(words, options)));
  auto tokenizer = openTokenizer(optionsFor(scratch.path("tokenizer.json")));
  EXPECT_EQ(tokenizer->eodToken(), 0);
  std::vector<int32_t> ids = tokenizer->encode(text);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer->decode(ids), text);
  // GPT-2's two files give the same ids.
  spit(scratch.path("vocab.json"), toVocabJson(trainBpe(words, options)));
  spit(scratch.path("merges.txt"), toMergeLines(trainBpe(words, options)));
  TokenizerOptions gpt2;
  gpt2.kind = "gpt2";
  gpt2.vocabFile = scratch.path("vocab.json");
  gpt2.mergeFile = scratch.path("merges.txt");
  auto other = openTokenizer(gpt2);
  EXPECT_EQ(other->eodToken(), 0);
  EXPECT_EQ(other->encode(text), ids);
}

} // namespace
} // namespace espalier::rt
