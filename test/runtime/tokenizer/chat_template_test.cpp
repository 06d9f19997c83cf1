// Tests the texts of chats: those of the named formats, and of templates beside a tokenizer. The interpreter has its
// own test.
#include "runtime/tokenizer/chat_template.h"

#include "messages/data_error.h"

#include <fstream>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<ChatMessage> chat = {
    {"system", "Be brief. "}, {"user", " Hello"}, {"assistant", "Hi there "}, {"user", "Who are you?"}};

Json jsonOf(const std::vector<ChatMessage> &messages) {
  Json list = Json::array();
  for (const ChatMessage &message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return list;
}

/// Returns the prompt of a named format, or why it refuses the messages.
std::string promptOf(const char *name, const std::vector<ChatMessage> &messages) {
  try {
    return chatTemplateNamed(name)->render(jsonOf(messages), /*addsGenerationPrompt=*/true).text;
  } catch (const ChatRefused &refused) {
    return refused.what();
  }
}

TEST(ChatTemplate, RendersChatml) {
  EXPECT_EQ(promptOf("chatml", chat),
            "<|im_start|>system\nBe brief. <|im_end|>\n<|im_start|>user\n Hello<|im_end|>\n"
            "<|im_start|>assistant\nHi there <|im_end|>\n<|im_start|>user\nWho are you?<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplate, RendersLlama2) {
  EXPECT_EQ(promptOf("llama2", chat),
            "<s>[INST] <<SYS>>\nBe brief. \n<</SYS>>\n\n Hello [/INST] Hi there </s><s>[INST] Who are you? [/INST]");
  EXPECT_EQ(promptOf("llama2", {{"user", " Hello "}}), "<s>[INST] Hello [/INST]");
}

TEST(ChatTemplate, RendersLlama3) {
  EXPECT_EQ(promptOf("llama3", chat),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nWho are you?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, RendersAlpaca) {
  EXPECT_EQ(promptOf("alpaca", {{"user", "Add 1 and 2."}}),
            "Below is an instruction that describes a task. Write a response that appropriately completes the request."
            "\n\n### Instruction:\nAdd 1 and 2.\n\n### Response:\n");
  EXPECT_EQ(promptOf("alpaca", chat),
            "Be brief.\n\n### Instruction:\nHello\n\n### Response:\nHi there\n\n### Instruction:\nWho are you?\n\n"
            "### Response:\n");
}

TEST(ChatTemplate, SaysWhichMessagesHaveNoPlace) {
  const char *turns = "template llama2 takes messages of user and assistant in turn, beginning and ending with user; a "
                      "system message may come first";
  EXPECT_EQ(promptOf("llama2", {{"user", "a"}, {"user", "b"}}), turns);
  EXPECT_EQ(promptOf("llama2", {{"user", "a"}, {"assistant", "b"}}), turns);
  EXPECT_THAT(promptOf("alpaca", {chat[0]}), testing::StartsWith("template alpaca takes messages"));
  EXPECT_EQ(promptOf("llama3", {}), "messages has no message");
}

/// A folder with the files of a tokenizer.
class TokenizerFolder : public testing::Test {
protected:
  void SetUp() override {
    folder = testing::TempDir() + "/find_chat_template";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  /// Finds a template with this text.
  ChatTemplatePtr found(const std::string &source) {
    Json config = {{"chat_template", source}, {"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}};
    std::ofstream(folder / "tokenizer_config.json") << config.dump();
    return findChatTemplate(folder).chat;
  }

  std::filesystem::path folder;
};

TEST_F(TokenizerFolder, HasItsTemplate) {
  EXPECT_EQ(findChatTemplate(folder).whyNot, "the tokenizer has no chat_template");
  EXPECT_EQ(findChatTemplate("").whyNot, "the tokenizer has no chat_template");
  std::ofstream(folder / "tokenizer_config.json") << R"({"chat_template": "\n{% for %}"})";
  EXPECT_EQ(findChatTemplate(folder / "tokenizer.json").whyNot,
            "the chat_template of the tokenizer is refused: line 2: unexpected %}");
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d{{ eos_token }}"}],
             "eos_token": {"content": "<e>"}})";
  EXPECT_EQ(findChatTemplate(folder).chat->render(jsonOf(chat), true).text, "d<e>");
  std::ofstream(folder / "chat_template.jinja") << "file {{ messages[0].role }}";
  EXPECT_EQ(findChatTemplate(folder / "tokenizer.json").chat->render(jsonOf(chat), true).text, "file system");
  std::ofstream(folder / "tokenizer_config.json") << "[";
  EXPECT_THROW(findChatTemplate(folder), DataError);
}

constexpr const char *turns = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
                              "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST_F(TokenizerFolder, EndsAnswersAsItsTemplateDoes) {
  EXPECT_EQ(found(turns)->stops, (std::vector<std::string>{"</s>", "<end>"}));
  EXPECT_EQ(found("{% for m in messages %}{{ m.content }}[/A] {% endfor %}")->stops,
            (std::vector<std::string>{"</s>", "[/A]"}));
  EXPECT_EQ(found("{{ raise_exception('no') }}")->stops, std::vector<std::string>{"</s>"});
}

TEST_F(TokenizerFolder, TakesTheVariablesOfItsTemplate) {
  ChatTemplatePtr more = found("{{ enable_thinking }}{{ documents[0].title }}{{ bos_token }}{{ tools is none }}");
  EXPECT_EQ(more->render(jsonOf(chat), true, {{"enable_thinking", false}, {"documents", {{{"title", "T"}}}}}).text,
            "FalseT<s>True");
}

/// Returns the parts with the answers in brackets.
std::string marked(const ChatTemplate &text, const std::vector<ChatMessage> &messages) {
  std::string all;
  for (const ChatPart &part : renderMessages(text, messages, ""))
    all += part.isAnswer ? "{" + part.text + "}" : part.text;
  return all;
}

TEST_F(TokenizerFolder, MarksAnswersWithoutGenerationBlocks) {
  std::vector<ChatMessage> talk = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", " d\n"}};
  EXPECT_EQ(marked(*found(turns), talk),
            "<s><user>a<end>\n<assistant>{b<end>}\n<user>c<end>\n<assistant>{ d\n<end>}\n");
  EXPECT_EQ(
      marked(*found("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}.{% endfor %}"), talk),
      "{a}.{b}.{c}.{ d\n}.");
  // Only the last answer keeps its words, so the tokens of the others are not those that a model writes.
  ChatTemplatePtr forgets = found("{% for m in messages %}{{ m.content if loop.last else 'x' }}{% endfor %}");
  EXPECT_THROW(marked(*forgets, talk), ChatRefused);
}

} // namespace
} // namespace espalier::rt
