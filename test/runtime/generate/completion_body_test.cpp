// Tests which request bodies are accepted, and the errors for the others.
#include "runtime/generate/completion_body.h"

#include "runtime/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

CompletionBody parse(const std::string &text) {
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  return parseCompletionBody(text, bytes.get());
}

std::string faultOf(const std::string &text) {
  try {
    parse(text);
  } catch (const BodyError &error) {
    return error.what();
  }
  return "none";
}

TEST(CompletionBody, HasOpenAisDefaults) {
  CompletionBody body = parse(R"({"model": "any", "prompt": "ab"})");
  EXPECT_EQ(body.request.prompt, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(body.request.maxTokens, 16);
  EXPECT_EQ(body.request.sampling.temperature, 1);
  EXPECT_EQ(body.request.sampling.topP, 1);
  EXPECT_FALSE(body.stream);
}

TEST(CompletionBody, ReadsEveryOption) {
  CompletionBody body = parse(R"({"prompt": [1, 2], "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 4,
    "seed": 5, "stop": ["x", "yz"], "stream": true, "n": 1, "logprobs": null, "presence_penalty": 0})");
  EXPECT_EQ(body.request.prompt, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(body.request.maxTokens, 3);
  EXPECT_EQ(body.request.sampling.temperature, 0.5);
  EXPECT_EQ(body.request.sampling.topP, 0.9);
  EXPECT_EQ(body.request.sampling.topK, 4);
  EXPECT_EQ(body.request.sampling.seed, 5U);
  EXPECT_EQ(body.request.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_TRUE(body.stream);
}

TEST(CompletionBody, RejectsInvalidBodies) {
  EXPECT_EQ(faultOf("{"), "the body is not a JSON object");
  EXPECT_EQ(faultOf("[]"), "the body is not a JSON object");
  EXPECT_EQ(faultOf(std::string(100, '[')), "the body is not a JSON object");
  EXPECT_EQ(faultOf("{}"), "prompt is neither one string nor one list of token ids");
  EXPECT_EQ(faultOf(R"({"prompt": [-1]})"), "prompt is neither one string nor one list of token ids");
  EXPECT_EQ(faultOf(R"({"prompt": ["a", "b"]})"), "prompt is neither one string nor one list of token ids");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "max_tokens": 1.5})"), "max_tokens is not an integer");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "temperature": "hot"})"), "temperature is not a number");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stream": 1})"), "stream is neither true nor false");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stop": [1]})"), "stop is neither a string nor a list of strings with text");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stop": ["a", "b", "c", "d", "e"]})"),
            "stop has more than 4 strings of 256 bytes");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "n": 2})"), "n is not supported; omit it");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "grammar": "x"})"), "grammar is not supported");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stream": true, "echo": true})"), "echo is not supported for streams; omit it");
  EXPECT_EQ(faultOf(std::string(2 << 20, ' ')), "the body has 2097152 bytes, at most 1048576 are taken");
}

TEST(CompletionBody, NeedsATokenizerForText) {
  EXPECT_THROW(parseCompletionBody(R"({"prompt": "a"})", nullptr), BodyError);
  EXPECT_EQ(parseCompletionBody(R"({"prompt": [7]})", nullptr).request.prompt, (std::vector<int32_t>{7}));
}

TEST(CompletionJson, IsAWholeAnswerOrAnEvent) {
  CompletionBody body = parse(R"({"prompt": "ab", "echo": true})");
  Completion end;
  end.tokens = {1, 2, 3};
  end.text = "cde";
  end.finish = Finish::Length;
  nlohmann::json whole = nlohmann::json::parse(completionJson("id", "tiny", body, &end, {}, 12));
  EXPECT_EQ(whole["choices"][0]["text"], "abcde");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["total_tokens"], 5);
  nlohmann::json event = nlohmann::json::parse(completionJson("id", "tiny", body, nullptr, "c", 12));
  EXPECT_EQ(event["choices"][0]["text"], "c");
  EXPECT_TRUE(event["choices"][0]["finish_reason"].is_null());
}

} // namespace
} // namespace espalier::rt
