// Files of tiktoken and tekken.json.
#pragma once

#include "runtime/tokenizer/tokenizer.h"

namespace espalier::rt {

/// Returns the tokenizer.json that gives the same ids, with the special tokens. The merges of a token are all ways to
/// cut it in two, as transformers writes them. Throws DataError.
std::string tiktokenAsTokenizerJson(TokenizerOptions options);

} // namespace espalier::rt
