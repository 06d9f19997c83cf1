// The named formats of chats as Jinja templates, for folders that transformers reads.
#pragma once

#include "runtime/tokenizer/chat_template.h"

namespace espalier::rt {

/// Returns the Jinja template that renders what renderChat() renders. It refers to the tokenizer's eos_token, and in
/// llama2 to its bos_token.
const char *jinjaOf(ChatTemplate chat);

} // namespace espalier::rt
