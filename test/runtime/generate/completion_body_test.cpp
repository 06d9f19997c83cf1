// Tests which request bodies are accepted, and the errors for the others.
#include "runtime/generate/completion_answer.h"
#include "runtime/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using testing::ElementsAre;

CompletionBody parse(const std::string &text) {
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  return parseCompletionBody(text, bytes.get());
}

CompletionBody parseChat(const std::string &text) {
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  return parseChatBody(text, *bytes, *chatTemplateNamed("chatml"), /*context=*/100);
}

template <typename Parse = CompletionBody (*)(const std::string &)>
std::string faultOf(const std::string &text, Parse read = parse) {
  try {
    read(text);
  } catch (const BodyError &error) {
    return error.what();
  }
  return "none";
}

TEST(CompletionBody, HasOpenAisDefaults) {
  CompletionBody body = parse(R"({"model": "any", "prompt": "ab"})");
  EXPECT_EQ(body.prompts[0].ids, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(body.options.maxTokens, 16);
  EXPECT_EQ(body.options.sampling.temperature, 1);
  EXPECT_EQ(body.options.sampling.topP, 1);
  EXPECT_FALSE(body.stream);
}

TEST(CompletionBody, ReadsEveryOption) {
  CompletionBody body = parse(R"({"prompt": [1, 2], "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 4,
    "seed": 5, "stop": ["x", "yz"], "stream": true, "n": 2, "best_of": 2, "logprobs": 3, "presence_penalty": 0.5,
    "frequency_penalty": -1, "repetition_penalty": 1.5, "min_p": 0.1, "logit_bias": {"7": -100, "8": 2.5},
    "stream_options": {"include_usage": true}, "return_token_ids": true})");
  EXPECT_EQ(body.prompts[0].ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(body.options.maxTokens, 3);
  EXPECT_EQ(body.options.sampling.temperature, 0.5);
  EXPECT_EQ(body.options.sampling.topP, 0.9);
  EXPECT_EQ(body.options.sampling.topK, 4);
  EXPECT_EQ(body.options.sampling.seed, 5U);
  EXPECT_EQ(body.options.sampling.presencePenalty, 0.5);
  EXPECT_EQ(body.options.sampling.frequencyPenalty, -1);
  EXPECT_EQ(body.options.sampling.repetitionPenalty, 1.5);
  EXPECT_EQ(body.options.sampling.minP, 0.1);
  EXPECT_THAT(body.options.sampling.bias, ElementsAre(std::pair(7, -100.0), std::pair(8, 2.5)));
  EXPECT_EQ(body.options.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(body.options.bestTokens, 3);
  EXPECT_FALSE(body.options.scoresPrompt);
  EXPECT_EQ(body.choices(), 2U);
  EXPECT_TRUE(body.stream && body.includesUsage && body.returnsIds);
}

TEST(CompletionBody, ReadsListsOfPrompts) {
  EXPECT_THAT(parse(R"({"prompt": "ab"})").prompts[0].ids, ElementsAre('a', 'b'));
  EXPECT_EQ(parse(R"({"prompt": ["a", "b"]})").prompts[1].text, "b");
  CompletionBody body = parse(R"({"prompt": [[1, 2], [3]], "n": 2, "seed": 7, "max_tokens": 0})");
  EXPECT_EQ(body.choices(), 4U);
  EXPECT_THAT(body.request(1).prompt, ElementsAre(1, 2));
  EXPECT_THAT(body.request(2).prompt, ElementsAre(3));
  EXPECT_EQ(body.request(1).sampling.seed, 8U); // choices of one prompt differ by their seed
  EXPECT_EQ(body.request(2).sampling.seed, 7U);
  EXPECT_EQ(body.request(2).maxTokens, 0);
}

TEST(CompletionBody, ScoresAnEchoedPrompt) {
  EXPECT_TRUE(parse(R"({"prompt": "a", "echo": true, "logprobs": 0})").options.scoresPrompt);
  EXPECT_FALSE(parse(R"({"prompt": "a", "echo": true})").options.scoresPrompt);
}

TEST(ChatBody, RendersMessages) {
  CompletionBody body = parseChat(R"({"messages": [{"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "stop": "x",
    "logprobs": true, "top_logprobs": 2, "tools": [], "response_format": {"type": "text"}})");
  EXPECT_EQ(body.prompts[0].text, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nab<|im_end|>\n"
                                  "<|im_start|>assistant\n");
  EXPECT_EQ(body.prompts[0].ids.size(), body.prompts[0].text.size());
  EXPECT_THAT(body.options.stop, ElementsAre("x", "<|im_end|>"));
  EXPECT_EQ(body.options.maxTokens, 100);
  EXPECT_EQ(body.options.bestTokens, 2);
}

TEST(ChatBody, GivesATemplateItsVariables) {
  const std::string source = "{{ enable_thinking }}{{ documents[0].title }}{% for m in messages %}<{{ m.role }}>"
                             "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments.x }}{% endfor %}"
                             "{{ m.reasoning_content }}{{ m.tool_call_id }}{% endfor %}";
  ChatTemplate chat{"tokenizer", source, jinja::Template(source), "", "", {"<end>"}, {}};
  auto tokenizer = makeByteTokenizer();
  CompletionBody body = parseChatBody(
      R"({"messages": [{"role": "developer", "content": "d", "name": null}, {"role": "assistant", "content": null,
          "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": [1, \"y\"]}"}}], "reasoning": "why"},
          {"role": "tool", "content": "t", "tool_call_id": "i"}],
          "chat_template_kwargs": {"enable_thinking": false}, "documents": [{"title": "T"}]})",
      *tokenizer, chat, /*context=*/100);
  EXPECT_EQ(body.prompts[0].text, "FalseT<system>d<assistant>[1, 'y']why<tool>ti");
  EXPECT_EQ(body.options.stop, std::vector<std::string>{"<end>"});
  auto fault = [](const std::string &keys) {
    return faultOf(R"({"messages": [{"role": "user", "content": "a"}], )" + keys + "}", parseChat);
  };
  EXPECT_EQ(fault(R"("chat_template_kwargs": {"messages": []})"),
            "chat_template_kwargs has messages, which the request itself decides");
  EXPECT_EQ(fault(R"("chat_template_kwargs": 5)"), "chat_template_kwargs is not an object");
  EXPECT_EQ(fault(R"("documents": ["x"])"), "documents is not a list of objects");
}

TEST(ChatBody, RejectsInvalidBodies) {
  auto fault = [](const std::string &text) { return faultOf(text, parseChat); };
  EXPECT_EQ(fault(R"({"prompt": "a"})"), "prompt is not supported");
  EXPECT_EQ(fault("{}"), "messages is not a list of messages");
  EXPECT_EQ(fault(R"({"messages": [5]})"), "a message is not an object with a role");
  EXPECT_EQ(fault(R"({"messages": [{"role": "tool", "content": "a"}]})"),
            "role 'tool' is not supported; the roles are system, user and assistant");
  const char *content = "the content of a message is neither a text nor a list of parts of type text";
  EXPECT_EQ(fault(R"({"messages": [{"role": "user"}]})"), content);
  EXPECT_EQ(fault(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"), content);
  EXPECT_EQ(fault(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]})"),
            "tools names no function: want {\"type\": \"function\", \"function\": {\"name\": ...}} with a name of at "
            "most 64 letters, digits, _, - and .");
  EXPECT_EQ(fault(R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2})"),
            "top_logprobs needs logprobs true");
}

TEST(CompletionBody, RejectsInvalidBodies) {
  EXPECT_EQ(faultOf("{"), "the body is not a JSON object");
  EXPECT_EQ(faultOf("[]"), "the body is not a JSON object");
  const char *tooMuch = "the body is nested in more than 32 levels, or an object has more than 256 keys";
  EXPECT_EQ(faultOf(std::string(100, '[')), tooMuch);
  std::string keys = "\"0\": 0";
  for (int i = 1; i < 257; ++i)
    keys += ", \"" + std::to_string(i) + "\": 0";
  EXPECT_EQ(faultOf("{" + keys + "}"), tooMuch);
  const char *noPrompt = "prompt is neither a text nor a list of token ids, nor a list of texts or of such lists";
  EXPECT_EQ(faultOf("{}"), noPrompt);
  EXPECT_EQ(faultOf(R"({"prompt": [-1]})"), noPrompt);
  EXPECT_EQ(faultOf(R"({"prompt": ["a", 5]})"), noPrompt);
  EXPECT_EQ(faultOf(R"({"prompt": [[1], [[2]]]})"), noPrompt);
  EXPECT_EQ(faultOf(R"({"prompt": "a", "max_tokens": 1.5})"), "max_tokens is not an integer");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "temperature": "hot"})"), "temperature is not a number");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stream": 1})"), "stream is neither true nor false");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stop": [1]})"), "stop is neither a string nor a list of strings with text");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stop": ["a", "b", "c", "d", "e"]})"),
            "stop has more than 4 strings of 256 bytes");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "n": 0})"), "n is 0, needs to be 1 to 128");
  EXPECT_EQ(faultOf(R"({"prompt": ["a", "b"], "n": 100})"),
            "2 prompts with n 100 make 200 answers, at most 128 are given");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "best_of": 2})"), "best_of is not supported beyond n; omit it");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "logprobs": 21})"), "logprobs is 21, needs to be 0 to 20");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "logit_bias": [5]})"), "logit_bias is not an object with ids of tokens as keys");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "logit_bias": {"5x": 1}})"),
            "logit_bias has the key '5x', which is no id of a token");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "logit_bias": {"5": 101}})"),
            "logit_bias of token 5 is not a number from -100 to 100");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "suffix": "b"})"), "suffix is not supported; omit it");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {}}})"),
            "response_format json_schema is not supported; give json_object, and describe the object in the prompt");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "response_format": 5})"),
            "response_format is not an object with type text or json_object");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stream_options": {"include_usage": true}})"),
            "stream_options is for streams; set stream, or omit it");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stream": true, "stream_options": {"include_usage": 1}})"),
            "stream_options is not an object with include_usage true or false");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "grammar": "x"})"), "grammar is not supported");
  EXPECT_EQ(faultOf(R"({"prompt": "a", "stream": true, "echo": true})"), "echo is not supported for streams; omit it");
  EXPECT_EQ(faultOf(R"({"prompt": [300], "echo": true})"), "bytes: error: id 300, want 0 to 256");
  EXPECT_EQ(faultOf(std::string(2 << 20, ' ')), "the body has 2097152 bytes, at most 1048576 are taken");
}

TEST(CompletionBody, NeedsATokenizerForText) {
  EXPECT_THROW(parseCompletionBody(R"({"prompt": "a"})", nullptr), BodyError);
  EXPECT_EQ(parseCompletionBody(R"({"prompt": [7]})", nullptr).prompts[0].ids, (std::vector<int32_t>{7}));
}

TEST(CompletionAnswer, IsWholeOrAnEvent) {
  CompletionBody body = parse(R"({"prompt": "ab", "echo": true})");
  Completion end;
  end.tokens = {1, 2, 3};
  end.text = "cde";
  end.finish = Finish::Length;
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  CompletionAnswer answer({"id", "tiny", 12}, body, bytes.get());
  nlohmann::json whole = nlohmann::json::parse(answer.whole(std::span(&end, 1)));
  EXPECT_EQ(whole["choices"][0]["text"], "abcde");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["total_tokens"], 5);
  EXPECT_FALSE(whole["choices"][0].contains("token_ids"));
  nlohmann::json event = nlohmann::json::parse(answer.event(0, {.text = "c"}));
  EXPECT_EQ(event["choices"][0]["text"], "c");
  EXPECT_TRUE(event["choices"][0]["finish_reason"].is_null());
  EXPECT_FALSE(event.contains("usage"));
  nlohmann::json usage = nlohmann::json::parse(answer.usageEvent(std::span(&end, 1)));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 3);
}

TEST(CompletionAnswer, HasLogProbabilities) {
  CompletionBody body = parse(R"({"prompt": "ab", "echo": true, "logprobs": 2})");
  Completion end;
  end.tokens = {'c'};
  end.text = "c";
  end.finish = Finish::Length;
  end.promptScores = {{'b', -3, {{'x', -0.5}, {'y', -1}}}};
  end.scores = {{'c', -0.25, {{'c', -0.25}, {'d', -2}}}};
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  nlohmann::json scores = nlohmann::json::parse(
      CompletionAnswer({}, body, bytes.get()).whole(std::span(&end, 1)))["choices"][0]["logprobs"];
  EXPECT_EQ(scores["tokens"], (nlohmann::json{"a", "b", "c"}));
  EXPECT_EQ(scores["token_logprobs"], (nlohmann::json{nullptr, -3.0, -0.25}));
  EXPECT_EQ(scores["text_offset"], (nlohmann::json{0, 1, 2}));
  EXPECT_EQ(scores["top_logprobs"][1], (nlohmann::json{{"x", -0.5}, {"y", -1.0}, {"b", -3.0}}));
  EXPECT_EQ(scores["top_logprobs"][2], (nlohmann::json{{"c", -0.25}, {"d", -2.0}}));
}

TEST(CompletionAnswer, IsAChat) {
  CompletionBody body = parseChat(R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true})");
  Completion end;
  end.text = "c";
  end.tokens = {'c'};
  end.scores = {{'c', -0.25, {}}};
  end.finish = Finish::Stop;
  std::unique_ptr<Tokenizer> bytes = makeByteTokenizer();
  CompletionAnswer answer({}, body, bytes.get());
  nlohmann::json choice = nlohmann::json::parse(answer.whole(std::span(&end, 1)))["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "c");
  EXPECT_EQ(choice["logprobs"]["content"][0]["logprob"], -0.25);
  EXPECT_EQ(choice["logprobs"]["content"][0]["bytes"], nlohmann::json::array({'c'}));
  nlohmann::json event = nlohmann::json::parse(answer.event(0, {.text = "c"}));
  EXPECT_EQ(event["object"], "chat.completion.chunk");
  EXPECT_EQ(event["choices"][0]["delta"]["content"], "c");
  EXPECT_EQ(nlohmann::json::parse(answer.firstEvent(0))["choices"][0]["delta"]["role"], "assistant");
}

TEST(CompletionAnswer, HasIdsWithoutATokenizer) {
  CompletionBody body = parseCompletionBody(R"({"prompt": [7], "logprobs": 0})", nullptr);
  Completion end;
  end.tokens = {9};
  end.scores = {{9, -1, {}}};
  nlohmann::json choice =
      nlohmann::json::parse(CompletionAnswer({}, body, nullptr).whole(std::span(&end, 1)))["choices"][0];
  EXPECT_EQ(choice["token_ids"], nlohmann::json::array({9}));
  EXPECT_EQ(choice["prompt_token_ids"], nlohmann::json::array({7}));
  EXPECT_EQ(choice["logprobs"]["tokens"], nlohmann::json::array({"token_id:9"}));
}

const std::string toolChat = R"("messages": [{"role": "user", "content": "a"}], "tools": [
    {"type": "function", "function": {"name": "f", "parameters": {}}},
    {"type": "function", "function": {"name": "g"}}])";

CompletionBody parseTools(const std::string &keys, const char *format = "<tool_call>") {
  const std::string source =
      "{% for t in tools or [] %}{{ t.function.name }},{% endfor %}{{ messages[0].content }}{# " + std::string(format) +
      " #}";
  ChatTemplate chat{"tokenizer", source, jinja::Template(source), "", "", {}, {}};
  return parseChatBody("{" + keys + "}", *makeByteTokenizer(), chat, /*context=*/100);
}

TEST(ChatBody, GivesATemplateItsTools) {
  CompletionBody body = parseTools(toolChat);
  EXPECT_EQ(body.prompts[0].text, "f,g,a");
  EXPECT_EQ(body.calls, CallFormat::Hermes);
  EXPECT_TRUE(body.options.showsMarks);
  EXPECT_EQ(body.options.grammar, nullptr);
  body = parseTools(toolChat + R"(, "tool_choice": "none")");
  EXPECT_EQ(body.prompts[0].text, "a");
  EXPECT_EQ(body.calls, CallFormat::None);
  EXPECT_NE(parseTools(toolChat + R"(, "tool_choice": "required")").options.grammar, nullptr);
  auto named = parseTools(toolChat + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})").options;
  Grammar::Place place;
  EXPECT_TRUE(named.grammar->push(place, "<tool_call>\n{\"name\": \"g"));
  place = {};
  EXPECT_FALSE(named.grammar->push(place, "<tool_call>\n{\"name\": \"f"));
}

TEST(ChatBody, RefusesToolsWithAReason) {
  auto fault = [](const std::string &keys, const char *format = "<tool_call>") {
    try {
      parseTools(keys, format);
    } catch (const BodyError &error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(
      fault(toolChat, ""),
      "tools are not supported with this chat template, because the format of its model's calls is not known; the "
      "formats are those of Qwen and Hermes, Llama 3, Mistral and gpt-oss");
  EXPECT_EQ(fault(toolChat + R"(, "tool_choice": "none")", ""), "none");
  EXPECT_EQ(fault(toolChat + R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})"),
            "tool_choice names h, which is not in tools");
  EXPECT_EQ(fault(toolChat + R"(, "tool_choice": "all")"),
            "tool_choice is neither none, auto or required, nor a function");
  EXPECT_EQ(fault(R"("messages": [{"role": "user", "content": "a"}], "tool_choice": "required")"),
            "tool_choice needs tools");
  EXPECT_EQ(fault(toolChat + R"(, "tool_choice": "required")", "<|channel|><|message|>"),
            "tool_choice is not supported beyond auto and none with this chat template, because the calls of its model "
            "are not JSON alone");
  EXPECT_EQ(fault(toolChat + R"(, "tool_choice": "required", "response_format": {"type": "json_object"})"),
            "response_format json_object and a tool_choice that requires a call exclude each other");
}

TEST(ChatBody, LeavesOutTheOldestTurns) {
  std::string messages = R"("messages": [)";
  for (const char *text : {"first", "second", "third"})
    messages += std::string(R"({"role": "user", "content": ")") + text + std::string(40, '.') + "\"},";
  messages.back() = ']';
  const std::string source = "{% for m in messages %}{{ m.content }}{% endfor %}";
  ChatTemplate chat{"tokenizer", source, jinja::Template(source), "", "", {}, {}};
  CompletionBody body = parseChatBody("{" + messages + R"(, "max_tokens": 5})", *makeByteTokenizer(), chat, 100);
  EXPECT_EQ(body.prompts[0].text, "second" + std::string(40, '.') + "third" + std::string(40, '.'));
  EXPECT_EQ(body.note, "the conversation exceeds the context of 100 tokens; its oldest message is left out");
  auto tokenizer = makeByteTokenizer();
  CompletionAnswer answer({}, body, tokenizer.get());
  std::vector<Completion> ends(1);
  EXPECT_EQ(nlohmann::json::parse(answer.whole(ends))["note"], body.note);
  EXPECT_EQ(nlohmann::json::parse(answer.firstEvent(0))["note"], body.note);
}

TEST(CompletionAnswer, HasToolCalls) {
  CompletionBody body = parseTools(toolChat);
  const std::string text = "Well.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  std::vector<Completion> ends(1);
  ends[0].text = text;
  ends[0].finish = Finish::Stop;
  auto tokenizer = makeByteTokenizer();
  CompletionAnswer answer({"id", "tiny", 12}, body, tokenizer.get());
  nlohmann::json choice = nlohmann::json::parse(answer.whole(ends))["choices"][0], message = choice["message"];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(message["content"], "Well.");
  ASSERT_EQ(message["tool_calls"].size(), 1U);
  nlohmann::json call = message["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_THAT(call["id"].get<std::string>(), testing::MatchesRegex("[0-9a-z]{9}"));
  EXPECT_EQ(call["function"], (nlohmann::json{{"name", "f"}, {"arguments", "{\"x\":1}"}}));

  std::string content;
  nlohmann::json calls = nlohmann::json::array(), reason;
  for (size_t at = 0; at < text.size(); ++at) {
    bool isLast = at + 1 == text.size();
    News news{.text = text.substr(at, 1), .end = isLast ? &ends[0] : nullptr};
    nlohmann::json event = nlohmann::json::parse(answer.event(0, news))["choices"][0];
    content += event["delta"].value("content", "");
    for (const nlohmann::json &one : event["delta"].value("tool_calls", nlohmann::json::array()))
      calls.push_back(one);
    reason = event["finish_reason"];
  }
  EXPECT_EQ(content, "Well.");
  EXPECT_EQ(reason, "tool_calls");
  call["index"] = 0;
  EXPECT_EQ(calls, nlohmann::json::array({call}));

  ends[0].text = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  EXPECT_TRUE(nlohmann::json::parse(answer.whole(ends))["choices"][0]["message"]["content"].is_null());
}

TEST(ErrorJson, IsOpenAisErrorObject) {
  nlohmann::json error = nlohmann::json::parse(errorJson("no", "server_error"))["error"];
  EXPECT_EQ(error["message"], "no");
  EXPECT_EQ(error["type"], "server_error");
  EXPECT_TRUE(error["param"].is_null() && error["code"].is_null());
}

} // namespace
} // namespace espalier::rt
