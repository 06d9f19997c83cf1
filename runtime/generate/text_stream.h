// The text that tokens add to the tokens before them. Decoders drop the white space before the first token and may
// split a character between tokens, so the text of a token depends on the tokens before it.
#pragma once

#include "runtime/generate/stop.h"
#include "runtime/tokenizer/tokenizer.h"

namespace espalier::rt {

/// The text of tokens behind others: `text` from `begin` on. The part of `text` before `begin` is the end of the text
/// of the earlier tokens.
struct AddedText {
  std::string text;
  size_t begin = 0;

  std::string added() const { return text.substr(begin); }
};

/// Returns decode(before + ids) minus decode(before). The text begins and ends within a character if `before` or `ids`
/// does. Ids that are no tokens have no text. The time does not depend on the length of `before`.
/// Example: if the decoder drops the first space, "▁two" behind "▁one" is " two".
AddedText continuationOf(const Tokenizer &tokenizer, std::span<const int32_t> before, std::span<const int32_t> ids);

/// Returns the text of a prompt, without an incomplete character at its end, which the continuation begins with.
std::string textOfPrompt(const Tokenizer &tokenizer, std::span<const int32_t> prompt);

/// Decodes the continuation of a prompt incrementally. Text is returned as soon as no later token can change it.
class TextStream {
public:
  /// Without a tokenizer there is no text. The tokenizer must outlive this object. `showsMarks`: the text also has the
  /// tokens that mark a place and that the decoder leaves out.
  TextStream(const Tokenizer *tokenizer, std::span<const int32_t> prompt, std::vector<std::string> stops,
             bool showsMarks = false)
      : tokenizer(tokenizer), filter(std::move(stops)), showsMarks(showsMarks), ids(prompt.begin(), prompt.end()),
        settled(ids.size()) {}

  /// Adds a token. Returns the text that is now final.
  std::string push(int32_t token);
  /// Returns the remaining text at the end.
  std::string finish();
  bool isStopped() const { return filter.isStopped(); }

private:
  std::string take(bool isEnd);

  const Tokenizer *tokenizer;
  StopFilter filter;
  bool showsMarks;
  std::vector<int32_t> ids; ///< the prompt and the tokens
  size_t settled;           ///< ids whose text was passed to the filter
  size_t taken = 0;         ///< bytes of the text of the other ids that were passed to the filter
};

} // namespace espalier::rt
