// The format of chats of a model, which `serve` and `chat` share.
#pragma once

#include "runtime/tokenizer/chat_template.h"
#include "tools/run/model_arguments.h"

namespace espalier {

/// The format of chats and the tokenizer of rendered chats.
struct ChatFormat {
  rt::FoundChatTemplate found;
  /// Adds no tokens of its own, because a chat template has all of them. Null: chats are refused.
  std::unique_ptr<rt::Tokenizer> tokenizer;
};

/// Opens the format named `name`, or if that is empty the one of the tokenizer's own template. Called after
/// openModel(). Throws PlanError if the tokenizer lacks a token of the format.
ChatFormat openChats(const ModelArguments &arguments, const std::string &name);

} // namespace espalier
