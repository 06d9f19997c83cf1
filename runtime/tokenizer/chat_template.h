// Chat templates: the text that a model of chats was trained to continue. Four published formats are known by name. A
// tokenizer's own template, which is a Jinja program, is not executed but compared with these formats.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The known formats.
enum class ChatTemplate { chatml, llama2, llama3, alpaca };

/// A message of a chat. The role is system, user or assistant.
struct ChatMessage {
  std::string role, content;
};

/// Returns the names of the formats.
std::vector<std::string> chatTemplateNames();
/// Returns the format of a name, which must be one of chatTemplateNames().
ChatTemplate chatTemplateNamed(std::string_view name);
/// Returns the name of a format.
std::string nameOf(ChatTemplate chat);

/// A piece of the text of a chat. `isAnswer`: the words of the assistant and the token that ends them, which a model
/// learns to write.
struct ChatPart {
  std::string text;
  bool isAnswer = false;
};

/// Returns why the format has no place for these messages; empty if it has. `endsWithUser`: the next message is the
/// assistant's.
std::string whyNotRendered(ChatTemplate chat, std::span<const ChatMessage> messages, bool endsWithUser = true);
/// Returns the text of messages in parts. `eos` ends an answer where the format has no token for it (alpaca). Requires
/// that whyNotRendered() is empty.
std::vector<ChatPart> renderMessages(ChatTemplate chat, std::span<const ChatMessage> messages, const std::string &eos);
/// Returns the text of a chat, up to where the next answer of the assistant begins. Requires that whyNotRendered() is
/// empty.
std::string renderChat(ChatTemplate chat, std::span<const ChatMessage> messages);
/// Returns the messages that alpaca renders as its authors render an example. The input may be empty.
std::vector<ChatMessage> alpacaMessages(std::string instruction, const std::string &input, std::string output);
/// Returns the tokens that a tokenizer must have for the format.
std::vector<std::string> specialTokensOf(ChatTemplate chat);
/// Returns the token with which a text of the format begins; empty: none.
std::string bosOf(ChatTemplate chat);
/// Returns the strings that end an answer, besides the end-of-document token.
std::vector<std::string> chatStops(ChatTemplate chat);

/// Returns the format that a Jinja template renders. Recognizes a template only if each of its string literals is a
/// part of the format, so that a default system message or a call of a tool makes it unknown.
std::optional<ChatTemplate> recognizeChatTemplate(std::string_view jinja);

/// The format of a tokenizer, or why it is not known.
struct FoundChatTemplate {
  std::optional<ChatTemplate> chat;
  std::string whyNot;
};

/// Looks beside a tokenizer file, or in the folder of a tokenizer, for chat_template.jinja and the `chat_template` of
/// tokenizer_config.json. Throws DataError if a file is broken.
FoundChatTemplate findChatTemplate(const std::filesystem::path &tokenizer);

} // namespace espalier::rt
