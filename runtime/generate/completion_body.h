// Request bodies of OpenAI's `/v1/completions` and `/v1/chat/completions`. A request is validated completely before
// use.
#pragma once

#include "runtime/generate/body_reader.h"
#include "runtime/generate/request.h"
#include "runtime/generate/tool_calls.h"
#include "runtime/tokenizer/chat_template.h"

#include <optional>

namespace espalier::rt {

class Tokenizer;

/// A text to continue.
struct Prompt {
  std::vector<int32_t> ids;
  std::string text; ///< empty if the request has only ids and no echo
};

/// A parsed request body.
struct CompletionBody {
  std::vector<Prompt> prompts; ///< at least one
  Request options;             ///< of each choice, without its prompt
  int64_t choicesPerPrompt = 1;
  bool isChat = false, stream = false, includesUsage = false;
  bool echo = false;                   ///< the answer begins with the prompt
  bool returnsIds = false;             ///< the answer also has token ids
  CallFormat calls = CallFormat::None; ///< of a chat: how its answers are split
  std::string note;                    ///< of a chat: about messages that are left out

  size_t choices() const { return prompts.size() * static_cast<size_t>(choicesPerPrompt); }
  const Prompt &promptOf(size_t choice) const { return prompts[choice / static_cast<size_t>(choicesPerPrompt)]; }
  /// Returns the request of a choice. Choice k of a prompt samples with seed + k.
  Request request(size_t choice) const;
};

/// Parses a body of `/v1/completions`. Throws BodyError. Unknown keys are an error unless their value asks for nothing.
/// Without a tokenizer, prompts must be lists of token ids.
CompletionBody parseCompletionBody(std::string_view text, Tokenizer *tokenizer, const BodyLimits &limits = {});

/// Parses a body of `/v1/chat/completions`. Throws BodyError. `tokenizer` must turn the template's tokens in a text
/// into their ids and add none. Without `max_tokens` an answer may fill the context. `chat_template_kwargs` and
/// `documents` are variables of the template. Turns that exceed the context are left out. A template of a tokenizer
/// decides which roles and keys messages have.
CompletionBody parseChatBody(std::string_view text, Tokenizer &tokenizer, const ChatTemplate &chat, int64_t context,
                             const BodyLimits &limits = {});

} // namespace espalier::rt
