// Which turns of a conversation are left out.
#include "runtime/generate/chat_prompt.h"

#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using Json = nlohmann::ordered_json;

/// Each message is 10 tokens: its role's letter, and its content.
ChatPrompt render(const std::vector<std::string> &roles, int64_t context, int64_t mostTokens) {
  const std::string source = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}";
  ChatTemplate chat{"tokenizer", source, jinja::Template(source), "", "", {}, {}};
  Json messages = Json::array();
  for (const std::string &role : roles)
    messages.push_back({{"role", role}, {"content", std::to_string(messages.size()) + "......./"}});
  auto tokenizer = makeByteTokenizer();
  ChatPrompt prompt = renderWithin(chat, *tokenizer, messages, context, mostTokens);
  EXPECT_EQ(prompt.ids.size(), prompt.text.size());
  EXPECT_EQ(prompt.note.empty(), prompt.leftOut == 0);
  std::erase(prompt.text, '.');
  return prompt;
}

const std::vector<std::string> roles = {"system",    "user", "assistant", "tool",
                                        "assistant", "user", "assistant", "user"};

TEST(RenderWithin, KeepsAConversationThatFits) {
  EXPECT_EQ(render(roles, 85, 5).text, "s0/u1/a2/t3/a4/u5/a6/u7/");
  EXPECT_EQ(render(roles, 80, 0).leftOut, 0U);
}

TEST(RenderWithin, LeavesOutWholeTurns) {
  EXPECT_EQ(render(roles, 79, 0).text, "s0/u5/a6/u7/");
  EXPECT_EQ(render(roles, 84, 5).leftOut, 4U);
  EXPECT_EQ(render(roles, 40, 0).text, "s0/u5/a6/u7/");
  EXPECT_EQ(render(roles, 39, 0).text, "s0/u7/");
}

TEST(RenderWithin, LeavesRoomForAnAnswerOfAQuarterAtMost) {
  EXPECT_EQ(render(roles, 100, 20).leftOut, 0U);
  EXPECT_EQ(render(roles, 100, 21).leftOut, 4U);
  EXPECT_EQ(render(roles, 108, 1000).leftOut, 0U);
  EXPECT_EQ(render(roles, 100, -5).leftOut, 0U);
}

TEST(RenderWithin, KeepsTheLastTurn) {
  EXPECT_EQ(render(roles, 5, 5).text, "s0/u7/");
  EXPECT_EQ(render({"system", "assistant"}, 5, 5).text, "s0/a1/");
  EXPECT_EQ(render(roles, 5, 5).note,
            "the conversation exceeds the context of 5 tokens; its 6 oldest messages are left "
            "out");
}

// A conversation of many turns is rendered a few times.
TEST(RenderWithin, FindsTheFewestOfManyTurns) {
  std::vector<std::string> many(5000, "user");
  for (size_t i = 1; i < many.size(); i += 2)
    many[i] = "assistant";
  ChatPrompt prompt = render(many, 10000, 0);
  EXPECT_LE(prompt.ids.size(), 10000U);
  EXPECT_GT(prompt.ids.size(), 10000U - 2 * 13);
}

} // namespace
} // namespace espalier::rt
