// The prompt of a conversation, which may exceed the context.
#pragma once

#include "runtime/tokenizer/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace espalier::rt {

/// A rendered conversation.
struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
  size_t leftOut = 0; ///< messages
  std::string note;   ///< about the messages that are left out; empty if there are none
};

/// Renders messages, with the variables `more`, and encodes the text. Leaves out the oldest turns while the prompt and
/// an answer of `mostTokens` tokens, or of a quarter of the context if that is less, exceed the context. A turn is a
/// message of the user with those up to the next. Messages before the first turn and the last turn stay. Throws
/// ChatRefused and DataError.
ChatPrompt renderWithin(const ChatTemplate &chat, Tokenizer &tokenizer, const nlohmann::ordered_json &messages,
                        int64_t context, int64_t mostTokens,
                        const nlohmann::ordered_json &more = nlohmann::ordered_json::object());

} // namespace espalier::rt
