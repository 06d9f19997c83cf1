// Chat templates: the text that a model of chats was trained to continue, as a Jinja program. Four published formats
// are known by name. The others are beside a tokenizer.
#pragma once

#include "runtime/jinja/template.h"

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// A message of a chat. The role is system, user or assistant.
struct ChatMessage {
  std::string role, content;
};

/// A piece of the text of a chat. `isAnswer`: the words of the assistant and the token that ends them, which a model
/// learns to write.
struct ChatPart {
  std::string text;
  bool isAnswer = false;
};

/// Messages that a template has no text for. what() is the template's reason.
class ChatRefused : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// A template and what belongs to it. Any thread may render it.
struct ChatTemplate {
  std::string name;   ///< of a known format; or tokenizer
  std::string source; ///< in Jinja
  jinja::Template program;
  std::string bos, eos;              ///< the values of bos_token and eos_token; empty: none
  std::vector<std::string> stops;    ///< the strings that end an answer, besides the end-of-document token
  std::vector<std::string> specials; ///< tokens that a tokenizer must have for the format

  bool isNamed() const { return name != "tokenizer"; }
  /// Returns the text of messages, which are objects with a role. `more` has further variables, which may replace those
  /// of the template. Throws ChatRefused.
  jinja::Rendered render(const nlohmann::ordered_json &messages, bool addsGenerationPrompt,
                         const nlohmann::ordered_json &more = nlohmann::ordered_json::object()) const;
};
using ChatTemplatePtr = std::shared_ptr<const ChatTemplate>;

/// Returns the names of the formats.
std::vector<std::string> chatTemplateNames();
/// Returns the format of a name, which must be one of chatTemplateNames().
ChatTemplatePtr chatTemplateNamed(std::string_view name);

/// Returns the text of messages in parts. `eos` ends an answer where the format has no token for it (alpaca). A
/// template with `generation` blocks marks its answers. In others, an answer is what the template adds to the messages
/// before it and the generation prompt, up to the white space at its end. Throws ChatRefused, also if the texts of a
/// conversation and of its beginning differ.
std::vector<ChatPart> renderMessages(const ChatTemplate &chat, std::span<const ChatMessage> messages,
                                     const std::string &eos);
/// Returns the messages that alpaca renders as its authors render an example. The input may be empty.
std::vector<ChatMessage> alpacaMessages(std::string instruction, const std::string &input, std::string output);

/// The template of a tokenizer, or why there is none.
struct FoundChatTemplate {
  ChatTemplatePtr chat;
  std::string whyNot;
};

/// Looks beside a tokenizer file, or in the folder of a tokenizer, for chat_template.jinja and the `chat_template` of
/// tokenizer_config.json. Throws DataError if a file is broken.
FoundChatTemplate findChatTemplate(const std::filesystem::path &tokenizer);

} // namespace espalier::rt
