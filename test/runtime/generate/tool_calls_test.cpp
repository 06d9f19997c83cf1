// Splits answers in the formats of published models, whole and as they are streamed.
#include "runtime/generate/tool_calls.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

/// Returns the parts as text: {reasoning}content, then name(arguments) of each call.
std::string textOf(const AnswerParts &parts) {
  std::string text = (parts.reasoning.empty() ? "" : "{" + parts.reasoning + "}") + parts.content;
  for (const ToolCall &call : parts.calls)
    text += "|" + call.name + "(" + call.arguments + ")";
  return text;
}

/// Splits the answer, and checks that the parts of its beginnings are beginnings of its parts.
std::string split(CallFormat format, const std::string &text) {
  AnswerParts whole = splitAnswer(format, text, /*isEnd=*/true), before;
  for (size_t size = 0; size <= text.size(); ++size) {
    AnswerParts parts = splitAnswer(format, text.substr(0, size), /*isEnd=*/false);
    EXPECT_TRUE(parts.content.starts_with(before.content)) << text << " until " << size;
    EXPECT_TRUE(parts.reasoning.starts_with(before.reasoning)) << text << " until " << size;
    EXPECT_GE(parts.calls.size(), before.calls.size()) << text << " until " << size;
    before = parts;
  }
  EXPECT_TRUE(whole.content.starts_with(before.content)) << text << ": " << before.content;
  EXPECT_TRUE(whole.reasoning.starts_with(before.reasoning)) << text;
  EXPECT_GE(whole.calls.size(), before.calls.size()) << text;
  return textOf(whole);
}

TEST(SplitAnswer, OfHermes) {
  auto of = [](const std::string &text) { return split(CallFormat::Hermes, text); };
  EXPECT_EQ(of("Hello <b>"), "Hello <b>");
  EXPECT_EQ(of("Hello <tool"), "Hello <tool");
  EXPECT_EQ(of("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"é\"]}}\n</tool_call>"),
            "|f({\"x\":[1,\"é\"]})");
  EXPECT_EQ(of("Let me see.\n\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n"
               "<tool_call>{\"name\": \"g\", \"arguments\": {\"s\": \"</tool>\"}}</tool_call>\n"),
            "Let me see.|f({})|g({\"s\":\"</tool>\"})");
  EXPECT_EQ(of("<tool_call>{\"name\": \"f\", \"arguments\": {}}"), "|f({})"); // its end was a stop string
  EXPECT_EQ(of("a <tool_call>{\"name\": 5}</tool_call> b"), "a <tool_call>{\"name\": 5}</tool_call> b");
  EXPECT_EQ(of("a <tool_call>{\"name\": \"f\", \"argu"), "a <tool_call>{\"name\": \"f\", \"argu");
}

TEST(SplitAnswer, OfLlama) {
  auto of = [](const std::string &text) { return split(CallFormat::Llama, text); };
  EXPECT_EQ(of("Hello <|py"), "Hello <|py");
  EXPECT_EQ(of("{\"name\": \"f\", \"parameters\": {\"x\": 1}}"), "|f({\"x\":1})");
  EXPECT_EQ(of("<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
               "{\"name\": \"g\", \"parameters\": {\"y\": {}}}"),
            "|f({})|g({\"y\":{}})");
  EXPECT_EQ(of("{\"name\": \"f\"} is JSON"), "{\"name\": \"f\"} is JSON");
  EXPECT_EQ(of("<|python_tag|>brave_search.call(query=\"x\")"), "<|python_tag|>brave_search.call(query=\"x\")");
  EXPECT_EQ(of(" "), " ");
}

TEST(SplitAnswer, OfMistral) {
  auto of = [](const std::string &text) { return split(CallFormat::Mistral, text); };
  EXPECT_EQ(of("Hello [TOOL"), "Hello [TOOL");
  EXPECT_EQ(of("[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}, \"id\": \"abcdefghi\"}, "
               "{\"name\": \"g\", \"arguments\": {}}]"),
            "|f({\"x\":1})|g({})");
  EXPECT_EQ(of("Well. [TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}"),
            "Well.|f({\"x\":1})|g({})");
  EXPECT_EQ(of("[TOOL_CALLS]f{\"x\": 1}"), "|f({\"x\":1})");
  EXPECT_EQ(of("[TOOL_CALLS] [{\"name\": \"f\"}]"), "[TOOL_CALLS] [{\"name\": \"f\"}]");
}

TEST(SplitAnswer, OfHarmony) {
  auto of = [](const std::string &text) { return split(CallFormat::Harmony, text); };
  EXPECT_EQ(
      of("<|channel|>analysis<|message|>Think <b>.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.\n"),
      "{Think <b>.}It is 4.\n");
  EXPECT_EQ(of("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
               "<|constrain|>json<|message|>{\"x\": 1}"),
            "{Hm.}|f({\"x\":1})");
  EXPECT_EQ(of(" to=functions.a.b<|channel|>commentary json<|message|>{}<|call|>"), "|a.b({})");
  EXPECT_EQ(of("<|channel|>commentary to=functions.f<|message|>{\"x"), "{\"x");
  EXPECT_EQ(of("no channel at all, but much text"), "no channel at all, but much text");
  EXPECT_EQ(of("<|channel|>final"), "");
}

TEST(CallFormat, IsRecognizedByTheTemplate) {
  EXPECT_EQ(callFormatOf("{{ tools }} <tool_call>"), CallFormat::Hermes);
  EXPECT_EQ(callFormatOf("{{ tools }} <tool_call>\\n<function=f>"), CallFormat::None);
  EXPECT_EQ(callFormatOf("{{ tools }} [TOOL_CALLS] ["), CallFormat::Mistral);
  EXPECT_EQ(callFormatOf("{{ tools }} [TOOL_CALLS]f[ARGS]"), CallFormat::MistralArgs);
  EXPECT_EQ(callFormatOf("{{ tools }} <|python_tag|>"), CallFormat::Llama);
  EXPECT_EQ(callFormatOf("{{ tools }} {\"name\": function name, \"parameters\": dictionary of"), CallFormat::Llama);
  EXPECT_EQ(callFormatOf("{{ tools }} <|channel|>final<|message|>"), CallFormat::Harmony);
  EXPECT_EQ(callFormatOf("{{ tools }}"), CallFormat::None);
  EXPECT_EQ(callFormatOf("<tool_call>"), CallFormat::None);
}

TEST(CallGrammar, IsReadAsACall) {
  const std::pair<CallFormat, std::string> texts[] = {
      {CallFormat::Hermes, "<tool_call>\n{\"name\": \"f2\", \"arguments\": {\"x\": 1}}\n</tool_call>"},
      {CallFormat::Llama, "{\"name\": \"f2\", \"parameters\": {\"x\": 1}}"},
      {CallFormat::Mistral, "[TOOL_CALLS] [{\"name\": \"f2\", \"arguments\": {\"x\": 1}}]"},
      {CallFormat::MistralArgs, "[TOOL_CALLS]f2[ARGS]{\"x\": 1}"}};
  for (const auto &[format, text] : texts) {
    auto grammar = callGrammar(format, {"f", "f2"}, "[TOOL_CALLS] ");
    Grammar::Place place;
    EXPECT_TRUE(grammar->push(place, text) && grammar->isComplete(place)) << text;
    EXPECT_EQ(split(format, text), "|f2({\"x\":1})");
    place = {};
    EXPECT_FALSE(callGrammar(format, {"g"}, "[TOOL_CALLS] ")->push(place, text)) << text;
  }
  EXPECT_EQ(callGrammar(CallFormat::Harmony, {"f"}, ""), nullptr);
}

} // namespace
} // namespace espalier::rt
