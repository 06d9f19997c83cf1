// Tests conversations: the tokens and masks are those that transformers computes (chats.jsonl, by make_chat_cases.py),
// and each fault of a line is one error with file and line.
#include "runtime/dataset/tokenize_chat.h"

#include "messages/data_error.h"
#include "runtime/dataset/indexed_dataset.h"
#include "runtime/dataset/tokenize_files.h"
#include "test/runtime/tokenizer/golden.h"

#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using namespace test;
using nlohmann::json;
using testing::HasSubstr;

const std::string models = ESPALIER_SOURCE_DIR "/test/golden/tokenizers/";

/// Opens a tokenizer of the folder with further special tokens.
std::unique_ptr<Tokenizer> openWith(const Scratch &scratch, const std::string &file,
                                    const std::vector<std::string> &added) {
  json model = json::parse(slurp(models + file));
  auto id = static_cast<int64_t>(model["model"]["vocab"].size());
  for (const std::string &text : added)
    model["added_tokens"].push_back({{"id", id++},
                                     {"content", text},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", true}});
  spit(scratch.path("tokenizer.json"), model.dump());
  TokenizerOptions options;
  options.kind = "hf";
  options.modelFile = scratch.path("tokenizer.json");
  return openTokenizer(options);
}

std::vector<int32_t> sequenceOf(const IndexedDataset &set, int64_t i) {
  std::vector<int32_t> tokens(set.sequenceLength(i));
  set.read(i, 0, tokens);
  return tokens;
}

ChatJob jobOf(const std::string &chat, bool hasMessages = true) {
  ChatJob job;
  job.chat = chatTemplateNamed(chat);
  if (hasMessages) {
    job.messagesKey = "messages";
    return job;
  }
  job.promptKey = "instruction";
  job.inputKey = "input";
  job.completionKey = "output";
  return job;
}

TEST(TokenizeChat, TokensAndMasksAreThoseOfTransformers) {
  Scratch scratch;
  std::istringstream lines(slurp(models + "chats.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    json one = json::parse(line);
    auto tokenizer = openWith(scratch, one["tokenizer"], one["added"]);
    ChatJob job = jobOf(one["template"], one["line"].contains("messages"));
    ChatTokenizer chat(*tokenizer, job);
    std::vector<int32_t> ids, mask;
    std::string fault;
    EXPECT_GT(chat.append(one["line"].dump(), ids, mask, fault), 0);
    EXPECT_EQ(fault, "");
    EXPECT_EQ(ids, one["ids"].get<std::vector<int32_t>>()) << line;
    EXPECT_EQ(mask, one["mask"].get<std::vector<int32_t>>()) << line;
  }
  EXPECT_EQ(cases, 31);
}

// Other files name messages and roles otherwise, and have values that Python's json alone reads.
TEST(TokenizeChat, ReadsTheConversationsOfOtherPrograms) {
  Scratch scratch;
  auto tokenizer = openWith(scratch, "split.json", {"<|im_start|>", "<|im_end|>"});
  auto idsOf = [&](const std::string &line) {
    ChatJob job = jobOf("chatml");
    ChatTokenizer chat(*tokenizer, job);
    std::vector<int32_t> ids, mask;
    std::string fault;
    EXPECT_GT(chat.append(line, ids, mask, fault), 0) << line;
    EXPECT_EQ(fault, "");
    ids.insert(ids.end(), mask.begin(), mask.end());
    return ids;
  };
  const std::string first = R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a b"},
                              {"role": "assistant", "content": "c"}]})";
  for (const char *other :
       {R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a b"},
            {"from": "gpt", "value": "c"}], "id": NaN})",
        R"({"system": "s", "conversations": [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c"}]})",
        R"({"conversations": [{"role": "system", "content": "s"}, {"role": "user", "content": "a b"},
            {"role": "assistant", "content": "c"}], "system": ""})",
        R"({"score": 1e400, "t": "\ud83d", "messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]},
            {"role": "user", "content": [{"type": "text", "text": "a "}, "b"]},
            {"role": "assistant", "content": "c"}]})"})
    EXPECT_EQ(idsOf(other), idsOf(first)) << other;
}

/// A line of a conversation with these messages, each a role and a content.
std::string chatLine(const std::vector<std::pair<std::string, std::string>> &messages) {
  json list = json::array();
  for (const auto &[role, content] : messages)
    list.push_back({{"role", role}, {"content", content}});
  return json({{"messages", list}}).dump();
}

TEST(TokenizeChat, WritesTheMaskBesideTheTokensWithAnyPartitions) {
  Scratch scratch;
  auto tokenizer = openWith(scratch, "split.json", {"<|im_start|>", "<|im_end|>"});
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += chatLine({{"user", fmt::format("question {}", i)}, {"assistant", fmt::format("answer {}", i * i)}}) + "\n";
  spit(scratch.path("chats.jsonl"), text);
  std::vector<std::string> tokens, masks;
  for (int partitions : {1, 3}) {
    TokenizeJob job;
    job.inputs = {scratch.path("chats.jsonl")};
    job.keys = {"messages"};
    job.chat = jobOf("chatml");
    job.outputPrefix = scratch.path(fmt::format("p{}", partitions));
    job.partitions = partitions;
    job.workers = 2;
    TokenizeReport report = tokenizeFiles(*tokenizer, job);
    std::string prefix = job.outputPrefix + "_messages_document";
    EXPECT_EQ(report.prefixes, (std::vector<std::string>{prefix, prefix + "_loss_mask"}));
    EXPECT_EQ(report.documents, 60);
    IndexedDataset set = IndexedDataset::open(prefix), mask = IndexedDataset::open(lossMaskPrefix(prefix));
    EXPECT_EQ(report.tokens, set.tokenCount());
    EXPECT_EQ(set.tokenCount(), mask.tokenCount());
    EXPECT_EQ(mask.tokenType(), TokenType::u8);
    ChatTokenizer chat(*tokenizer, *job.chat);
    std::vector<int32_t> ids, counts;
    std::string fault;
    chat.append(chatLine({{"user", "question 59"}, {"assistant", "answer 3481"}}), ids, counts, fault);
    EXPECT_EQ(sequenceOf(set, 59), ids);
    EXPECT_EQ(sequenceOf(mask, 59), counts);
    tokens.push_back(slurp(prefix + ".bin"));
    masks.push_back(slurp(prefix + "_loss_mask.bin"));
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(masks[0], masks[1]);
}

TEST(TokenizeChat, FirstAndLastTokensAsAskedFor) {
  Scratch scratch;
  auto tokenizer = openWith(scratch, "chars.json", {"<|im_start|>", "<|im_end|>"});
  auto encode = [&](ChatJob job, std::optional<bool> bos, std::optional<bool> eos) {
    job.addsBos = bos;
    job.addsEos = eos;
    std::vector<int32_t> ids, mask;
    std::string fault;
    ChatTokenizer(*tokenizer, job).append(chatLine({{"user", "a"}, {"assistant", "b"}}), ids, mask, fault);
    EXPECT_EQ(fault, "");
    EXPECT_EQ(ids.size(), mask.size());
    return std::tuple(ids.front() == 1, ids.back() == 2, mask.back()); // <s> is 1, </s> is 2
  };
  using Ends = std::tuple<bool, bool, int32_t>;
  EXPECT_EQ(encode(jobOf("chatml"), std::nullopt, std::nullopt), Ends(false, false, 0));
  EXPECT_EQ(encode(jobOf("chatml"), true, true), Ends(true, true, 0));
  for (const char *chat : {"llama2", "alpaca"}) {
    EXPECT_EQ(encode(jobOf(chat), std::nullopt, std::nullopt), Ends(true, true, 1)) << chat;
    EXPECT_EQ(encode(jobOf(chat), true, true), Ends(true, true, 1)) << chat;
    EXPECT_EQ(encode(jobOf(chat), false, false), Ends(false, false, 1)) << chat;
  }
}

TEST(TokenizeChat, EachBadLineIsOneErrorWithItsLine) {
  Scratch scratch;
  auto tokenizer = openWith(scratch, "chars.json", {"<|im_start|>", "<|im_end|>"});
  auto errorOf = [&](const std::string &bad, const ChatJob &chat) {
    std::string good = chat.messagesKey.empty() ? R"({"instruction": "a", "output": "b"})"
                                                : chatLine({{"user", "a"}, {"assistant", "b"}});
    spit(scratch.path("bad.jsonl"), good + "\n" + bad + "\n");
    TokenizeJob job;
    job.inputs = {scratch.path("bad.jsonl")};
    job.keys = {"messages"};
    job.chat = chat;
    job.outputPrefix = scratch.path("out");
    std::string what = "no error";
    try {
      tokenizeFiles(*tokenizer, job);
    } catch (const DataError &error) {
      EXPECT_EQ(error.line(), 2);
      what = error.reason();
    }
    for (const auto &entry : std::filesystem::directory_iterator(scratch.path("")))
      EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
    return what;
  };
  ChatJob chatml = jobOf("chatml"), llama2 = jobOf("llama2"), alpaca = jobOf("alpaca", false);
  EXPECT_THAT(errorOf("{", chatml), HasSubstr("not JSON: parse error"));
  EXPECT_EQ(errorOf("1", chatml), "want an object, got number");
  EXPECT_THAT(errorOf("[", chatml), HasSubstr("begins a JSON array, want an object per line; jq -c '.[]' FILE"));
  EXPECT_EQ(errorOf(R"({"text": "a"})", chatml), "no key \"messages\"; there are \"text\"");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", chatml),
            "message 1 of \"messages\": a part of \"content\": is no text; only parts of type text are read");
  EXPECT_EQ(errorOf(R"({"conversations": [{"from": "observation", "value": "a"}]})", chatml),
            "message 1 of \"messages\": role \"observation\", want system, user or assistant");
  EXPECT_EQ(errorOf(R"({"conversations": [{"from": "human", "value": "\ud83d"}]})", chatml),
            "message 1 of \"messages\": key \"value\" holds U+FFFF or half of a surrogate pair, which are no "
            "characters");
  EXPECT_EQ(errorOf(R"({"messages": "a"})", chatml), "key \"messages\" holds string, want a list of messages");
  EXPECT_EQ(errorOf(R"({"messages": []})", chatml), "key \"messages\" holds no message");
  EXPECT_EQ(errorOf(R"({"messages": ["a"]})", chatml),
            "message 1 of \"messages\" is string, want an object with role and content");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user"}]})", chatml),
            "message 1 of \"messages\": no key \"content\"; there are \"role\"");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user", "content": null}]})", chatml),
            "message 1 of \"messages\": key \"content\" holds null, want a string");
  EXPECT_EQ(errorOf(chatLine({{"user", "a"}, {"tool", "b"}}), chatml),
            "message 2 of \"messages\": role \"tool\", want system, user or assistant");
  EXPECT_EQ(errorOf(chatLine({{"user", "a"}}), chatml),
            "key \"messages\" holds no message of the assistant, so there is nothing to learn");
  EXPECT_EQ(errorOf(chatLine({{"assistant", "a"}, {"user", "b"}}), llama2),
            "template llama2 takes messages of user and assistant in turn, beginning with user; a system message may "
            "come first");
  EXPECT_EQ(errorOf(R"({"instruction": "a"})", alpaca), "no key \"output\"; there are \"instruction\"");
  EXPECT_EQ(errorOf(R"({"instruction": "a", "output": "b", "input": 1})", alpaca),
            "key \"input\" holds number, want a string");
}

TEST(TokenizeChat, RefusesATokenizerWithoutTheTokens) {
  Scratch scratch;
  auto tokenizer = openWith(scratch, "split.json", {});
  auto refusal = [&](Tokenizer &of, ChatJob job) {
    try {
      ChatTokenizer made(of, job);
    } catch (const DataError &error) {
      return error.reason();
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal(*tokenizer, jobOf("chatml")),
              testing::StartsWith("template chatml needs <|im_start|> as one token, the tokenizer makes 9 of it; give "
                                  "the tokenizer of a model of this template"));
  auto bytes = makeByteTokenizer();
  EXPECT_THAT(refusal(*bytes, jobOf("llama2")), HasSubstr("needs <s> as one token, the tokenizer makes 3 of it"));
  EXPECT_THAT(refusal(*bytes, jobOf("alpaca")),
              HasSubstr("no text for the token that ends a document, which template alpaca needs"));
  ChatJob job = jobOf("alpaca");
  job.addsEos = false;
  job.addsBos = true;
  EXPECT_THAT(refusal(*bytes, job), HasSubstr("no token that begins a document, which --bos yes asks for"));
}

} // namespace
} // namespace espalier::rt
