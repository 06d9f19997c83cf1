// Tokenizes conversations for supervised fine-tuning: the tokens of a chat template, and a loss mask with 1 for each
// token that the assistant writes.
#pragma once

#include "runtime/tokenizer/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The conversations of JSON lines: the keys, and the text that they become.
struct ChatJob {
  std::string messagesKey;                        // a list of {role, content}; empty: the three keys below
  std::string promptKey, completionKey, inputKey; // strings; the input is optional, and the line may lack it
  ChatTemplatePtr chat;                           // not null
  std::optional<bool> addsBos, addsEos; // whether a document begins and ends with the token; default: as the template
};

/// Renders and tokenizes conversations. Each thread needs its own.
class ChatTokenizer {
public:
  /// Throws DataError if a token of the template is not one id of the tokenizer.
  ChatTokenizer(Tokenizer &tokenizer, const ChatJob &job);

  /// Appends the tokens of the conversation in a JSON line, and the mask of the tokens. Returns the number of bytes of
  /// the rendered text. Returns 0 and sets `fault` if the line is no conversation.
  int64_t append(std::string_view line, std::vector<int32_t> &ids, std::vector<int32_t> &mask, std::string &fault);

private:
  void appendParts(std::vector<ChatPart> parts, std::vector<int32_t> &ids, std::vector<int32_t> &mask);

  Tokenizer &tokenizer;
  const ChatJob &job;
  std::string bos, eos; // the texts of the two tokens; empty: none
};

} // namespace espalier::rt
