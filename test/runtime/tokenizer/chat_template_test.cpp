// Tests the texts of chats and the recognition of tokenizers' templates. The expected texts are what jinja2 renders
// from the templates below, with bos_token <s> or <|begin_of_text|> and eos_token </s>.
#include "runtime/tokenizer/chat_template.h"

#include <fstream>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

const std::vector<ChatMessage> chat = {
    {"system", "Be brief. "}, {"user", " Hello"}, {"assistant", "Hi there "}, {"user", "Who are you?"}};

TEST(ChatTemplate, RendersChatml) {
  EXPECT_EQ(renderChat(ChatTemplate::chatml, chat),
            "<|im_start|>system\nBe brief. <|im_end|>\n<|im_start|>user\n Hello<|im_end|>\n"
            "<|im_start|>assistant\nHi there <|im_end|>\n<|im_start|>user\nWho are you?<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplate, RendersLlama2) {
  EXPECT_EQ(renderChat(ChatTemplate::llama2, chat),
            "<s>[INST] <<SYS>>\nBe brief. \n<</SYS>>\n\n Hello [/INST] Hi there </s><s>[INST] Who are you? [/INST]");
  EXPECT_EQ(renderChat(ChatTemplate::llama2, std::vector<ChatMessage>{{"user", " Hello "}}), "<s>[INST] Hello [/INST]");
}

TEST(ChatTemplate, RendersLlama3) {
  EXPECT_EQ(renderChat(ChatTemplate::llama3, chat),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nWho are you?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, RendersAlpaca) {
  EXPECT_EQ(renderChat(ChatTemplate::alpaca, std::vector<ChatMessage>{{"user", "Add 1 and 2."}}),
            "Below is an instruction that describes a task. Write a response that appropriately completes the request."
            "\n\n### Instruction:\nAdd 1 and 2.\n\n### Response:\n");
  EXPECT_EQ(renderChat(ChatTemplate::alpaca, chat),
            "Be brief.\n\n### Instruction:\nHello\n\n### Response:\nHi there\n\n### Instruction:\nWho are you?\n\n"
            "### Response:\n");
}

TEST(ChatTemplate, SaysWhichMessagesHaveNoPlace) {
  std::vector<ChatMessage> twice = {{"user", "a"}, {"user", "b"}};
  EXPECT_EQ(whyNotRendered(ChatTemplate::chatml, twice), "");
  EXPECT_EQ(whyNotRendered(ChatTemplate::llama2, twice),
            "template llama2 takes messages of user and assistant in turn, beginning and ending with user; a system "
            "message may come first");
  EXPECT_EQ(whyNotRendered(ChatTemplate::alpaca, chat), "");
  EXPECT_NE(whyNotRendered(ChatTemplate::alpaca, std::span(chat).first(1)), "");
  EXPECT_NE(whyNotRendered(ChatTemplate::alpaca, std::span(chat).first(3)), "");
  EXPECT_EQ(whyNotRendered(ChatTemplate::llama3, {}), "messages has no message");
}

constexpr const char *chatml = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m['content'] + "
                               "'<|im_end|>\\n' }}{% endfor %}\n{% if add_generation_prompt %}"
                               "{{ \"<|im_start|>assistant\\n\" }}{% endif %}";
constexpr const char *llama3 = "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}"
                               "<|end_header_id|>\n\n{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
                               "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}";
constexpr const char *llama2 =
    "{% if messages[0].role == 'system' %}{% set s = '<<SYS>>\\n' + messages[0].content.strip() + '\\n<</SYS>>\\n\\n' "
    "%}"
    "{% endif %}{% for m in messages[1:] %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% if m.role == 'user' %}"
    "{{ bos_token + '[INST] ' + ((s if loop.index0 == 0 else '') + m.content).strip() + ' [/INST]' }}{% elif m.role == "
    "'assistant' %}"
    "{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}";

TEST(RecognizeChatTemplate, KnowsTheNamedFormats) {
  EXPECT_EQ(recognizeChatTemplate(chatml), ChatTemplate::chatml);
  EXPECT_EQ(recognizeChatTemplate(llama2), ChatTemplate::llama2);
  EXPECT_EQ(recognizeChatTemplate(llama3), ChatTemplate::llama3);
  EXPECT_EQ(
      recognizeChatTemplate("{{ messages[0].content | trim }}\n\n{% for m in messages[1:] %}{% if m.role == 'user' "
                            "%}### Instruction:\n{{ m.content | trim }}\n\n{% endif %}{% endfor %}### Response:\n"),
      ChatTemplate::alpaca);
}

TEST(RecognizeChatTemplate, RefusesTemplatesThatSayMore) {
  EXPECT_EQ(recognizeChatTemplate(""), std::nullopt);
  EXPECT_EQ(recognizeChatTemplate("{{ '<|im_start|>"), std::nullopt);
  EXPECT_EQ(recognizeChatTemplate("{{ messages }}"), std::nullopt);
  std::string own = chatml;
  EXPECT_EQ(recognizeChatTemplate(own + "{{ 'You are a helpful assistant.' }}"), std::nullopt); // a default message
  EXPECT_EQ(recognizeChatTemplate(own + "{% if m['tool_calls'] %}{% endif %}"), std::nullopt);
  own.replace(own.find("m['content']"), 12, "m['content'] | trim"); // chatml keeps white space
  EXPECT_EQ(recognizeChatTemplate(own), std::nullopt);
}

TEST(FindChatTemplate, LooksBesideTheTokenizer) {
  std::filesystem::path folder = testing::TempDir() + "/find_chat_template";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_EQ(findChatTemplate(folder).whyNot, "the server's tokenizer has no chat_template; start the server with "
                                             "--chat-template chatml|llama2|llama3|alpaca");
  std::ofstream(folder / "tokenizer_config.json") << R"({"chat_template": "{{ messages }}"})";
  EXPECT_EQ(findChatTemplate(folder / "tokenizer.json").whyNot,
            "the chat_template of the server's tokenizer is none that is known by name; start the server with "
            "--chat-template chatml|llama2|llama3|alpaca");
  std::ofstream(folder / "chat_template.jinja") << llama3;
  EXPECT_EQ(findChatTemplate(folder / "tokenizer.json").chat, ChatTemplate::llama3);
  EXPECT_EQ(findChatTemplate(folder).chat, ChatTemplate::llama3);
}

} // namespace
} // namespace espalier::rt
