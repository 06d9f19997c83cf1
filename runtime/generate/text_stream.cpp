#include "runtime/generate/text_stream.h"

namespace espalier::rt {

namespace {

/// U+FFFD, which tokenizers decode invalid or incomplete characters to.
constexpr std::string_view replacement = "\xef\xbf\xbd";

} // namespace

std::string TextStream::push(int32_t token) {
  if (!tokenizer)
    return "";
  tokens.push_back(token);
  std::string text = tokenizer->decode(tokens);
  size_t sure = wholeCharacters(text);
  while (std::string_view(text).substr(0, sure).ends_with(replacement))
    sure -= replacement.size();
  if (sure <= taken)
    return "";
  std::string piece = filter.push(std::string_view(text).substr(taken, sure - taken));
  taken = sure;
  return piece;
}

std::string TextStream::finish() {
  if (!tokenizer)
    return "";
  std::string text = tokenizer->decode(tokens), piece;
  if (text.size() > taken)
    piece = filter.push(std::string_view(text).substr(taken));
  taken = text.size();
  return piece + filter.finish();
}

} // namespace espalier::rt
