// Tests the files that keep a tokenizer: which tokenizer a folder holds, and that it gives the ids of the original.
#include "runtime/tokenizer/tokenizer_files.h"

#include "runtime/files/atomic_file.h"
#include "runtime/tokenizer/named_templates.h"
#include "runtime/tokenizer/train_bpe.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string text = "The plan is 3 \xC3\xA4 \xFF\n  long. The plan ends.";

TokenizerOptions optionsOf(const std::string &kind, const Path &modelFile, const Path &vocabFile = {},
                           const Path &mergeFile = {}) {
  TokenizerOptions options;
  options.kind = kind;
  options.modelFile = modelFile;
  options.vocabFile = vocabFile;
  options.mergeFile = mergeFile;
  return options;
}

class TokenizerFiles : public testing::Test {
protected:
  void SetUp() override {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    WordCounts words;
    words.add(text + text);
    trained = trainBpe(words, {.vocabSize = 262, .specialTokens = {"<|endoftext|>", "<s>"}});
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  /// Writes the files into a folder and opens the tokenizer there.
  std::unique_ptr<Tokenizer> kept(const std::vector<SideFile> &files) {
    writeTokenizerFolder(folder / "kept", files);
    std::optional<TokenizerOptions> options = tokenizerIn(folder / "kept");
    EXPECT_TRUE(options);
    return openTokenizer(*options);
  }
  static nlohmann::json configIn(const std::vector<SideFile> &files) {
    for (const SideFile &file : files)
      if (file.name == "tokenizer_config.json")
        return nlohmann::json::parse(file.bytes);
    return {};
  }
  /// A tokenizer.json that begins each text with <s>.
  std::string withBegin() const {
    nlohmann::ordered_json file = nlohmann::ordered_json::parse(toTokenizerJson(trained));
    file["post_processor"] = nlohmann::ordered_json::parse(
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})");
    return file.dump();
  }

  Path folder = Path(testing::TempDir()) / "tokenizer_files";
  TrainedBpe trained;
};

TEST_F(TokenizerFiles, BytesAreTheirOwnIds) {
  for (bool endsDocuments : {false, true}) {
    std::unique_ptr<Tokenizer> tokenizer = kept(byteTokenizerFiles(endsDocuments));
    std::vector<int32_t> ids = tokenizer->encode(text);
    ASSERT_EQ(ids.size(), text.size());
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(ids[i], static_cast<unsigned char>(text[i]));
    EXPECT_EQ(tokenizer->decode(ids), makeByteTokenizer()->decode(ids));
    EXPECT_EQ(tokenizer->vocabSize(), endsDocuments ? 257 : 256);
    EXPECT_EQ(tokenizer->eodToken(), endsDocuments ? 256 : -1);
  }
}

TEST_F(TokenizerFiles, AFileOfAnotherNameIsKeptAlone) {
  writeWhole(folder / "book.json", toTokenizerJson(trained));
  writeWhole(folder / "tokenizer_config.json", "{\"eos_token\": \"<other>\"}");
  TokenizerOptions options = optionsOf("hf", folder / "book.json");
  std::vector<SideFile> files = tokenizerFilesOf(options);
  EXPECT_EQ(configIn(files)["eos_token"], "<|endoftext|>");
  EXPECT_EQ(configIn(files)["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(kept(files)->encode(text), openTokenizer(options)->encode(text));
  options.eodText = "<s>";
  EXPECT_EQ(kept(tokenizerFilesOf(options))->eodToken(), 1);
}

TEST_F(TokenizerFiles, TextsBeginAsTheDataDo) {
  writeWhole(folder / "tokenizer.json", withBegin());
  TokenizerOptions options = optionsOf("hf", folder);
  for (bool adds : {false, true}) {
    options.specialTokens = adds;
    std::vector<SideFile> files = tokenizerFilesOf(options);
    EXPECT_EQ(configIn(files).contains("add_bos_token"), !adds);
    std::vector<int32_t> ids = kept(files)->encode(text);
    EXPECT_EQ(ids, openTokenizer(options)->encode(text));
    EXPECT_EQ(ids.front() == 1, adds);
  }
}

TEST_F(TokenizerFiles, Gpt2AndItsTwoFiles) {
  writeWhole(folder / "a.json", toVocabJson(trained));
  writeWhole(folder / "a.txt", toMergeLines(trained));
  TokenizerOptions options = optionsOf("GPT2BPETokenizer", "", folder / "a.json", folder / "a.txt");
  std::vector<SideFile> files = tokenizerFilesOf(options);
  std::vector<std::string> names;
  for (const SideFile &file : files)
    names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("vocab.json", "merges.txt", "tokenizer_config.json"));
  EXPECT_EQ(kept(files)->encode(text), openTokenizer(options)->encode(text));
}

TEST_F(TokenizerFiles, ATemplateByNameIsWrittenAsJinja) {
  writeWhole(folder / "tokenizer.json", toTokenizerJson(trained));
  writeWhole(folder / "chat_template.jinja", "{{ messages }}");
  for (const std::string &name : chatTemplateNames()) {
    ChatTemplatePtr chat = chatTemplateNamed(name);
    kept(tokenizerFilesOf(optionsOf("hf", folder), chat));
    ChatTemplatePtr found = findChatTemplate(folder / "kept").chat;
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->source, chat->source);
  }
}

TEST_F(TokenizerFiles, AnotherTokenizerReplacesTheFolder) {
  kept(byteTokenizerFiles(true));
  writeWhole(folder / "a.json", toVocabJson(trained));
  writeWhole(folder / "a.txt", toMergeLines(trained));
  kept(tokenizerFilesOf(optionsOf("gpt2", "", folder / "a.json", folder / "a.txt")));
  EXPECT_EQ(tokenizerIn(folder / "kept")->kind, "gpt2");
  TokenizerOptions ids = optionsOf("null", "");
  ids.vocabSize = 5;
  writeTokenizerFolder(folder / "kept", tokenizerFilesOf(ids));
  EXPECT_FALSE(std::filesystem::exists(folder / "kept"));
  EXPECT_FALSE(tokenizerIn(folder / "kept"));
}

TEST_F(TokenizerFiles, DamagedConfigIsNamed) {
  writeWhole(folder / "tokenizer.json", toTokenizerJson(trained));
  writeWhole(folder / "tokenizer_config.json", "[1");
  try {
    tokenizerIn(folder);
    FAIL();
  } catch (const std::exception &error) {
    EXPECT_THAT(error.what(), HasSubstr("tokenizer_config.json: error: not a JSON object"));
  }
  writeWhole(folder / "file", "");
  EXPECT_THROW(writeTokenizerFolder(folder / "file" / "x", byteTokenizerFiles(false)), std::exception);
}

TEST_F(TokenizerFiles, RanksAreKeptAsTokenizerJson) {
  TokenizerOptions options = optionsOf("tiktoken", ESPALIER_SOURCE_DIR "/test/golden/tokenizers/tekken.json");
  std::vector<SideFile> files = tokenizerFilesOf(options);
  EXPECT_EQ(configIn(files)["eos_token"], "</s>");
  std::unique_ptr<Tokenizer> json = kept(files);
  EXPECT_EQ(json->encode(text), openTokenizer(options)->encode(text));
  EXPECT_EQ(json->eodToken(), 2);
  // A folder with the file itself has the same tokenizer.
  std::filesystem::create_directories(folder / "mistral");
  std::filesystem::copy_file(options.modelFile, folder / "mistral/tekken.json");
  std::optional<TokenizerOptions> found = tokenizerIn(folder / "mistral");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, "tiktoken");
  EXPECT_EQ(openTokenizer(*found)->encode(text), json->encode(text));
  EXPECT_EQ(tokenizerFilesIn(folder / "mistral").size(), 1U);
}

} // namespace
} // namespace espalier::rt
