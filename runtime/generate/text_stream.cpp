#include "runtime/generate/text_stream.h"

#include "runtime/utf8.h"

#include <algorithm>

namespace espalier::rt {

namespace {

/// Tokens before a continuation that are decoded with it. More are decoded if these have no text.
constexpr size_t fewestTokens = 32;

std::string textOf(const Tokenizer &tokenizer, std::vector<int32_t> ids) {
  std::erase_if(ids, [&](int32_t id) { return !tokenizer.hasToken(id); });
  return tokenizer.decode(ids);
}

/// Returns the start of the character that holds the byte at `position`, or `position` if it is in no valid character.
size_t startOfCharacter(std::string_view text, size_t position) {
  if (position == 0 || position >= text.size() || (static_cast<uint8_t>(text[position]) & 0xC0) != 0x80)
    return position;
  size_t start = charBefore(text, position);
  return start + decodeUtf8(text, start).bytes > position ? start : position;
}

} // namespace

AddedText continuationOf(const Tokenizer &tokenizer, std::span<const int32_t> before, std::span<const int32_t> ids) {
  std::vector<int32_t> both;
  std::string first;
  for (size_t count = fewestTokens; first.empty() && both.size() < before.size(); count *= 2) {
    auto last = before.last(std::min(count, before.size()));
    both.assign(last.begin(), last.end());
    first = textOf(tokenizer, both);
  }
  both.insert(both.end(), ids.begin(), ids.end());
  AddedText result{textOf(tokenizer, std::move(both))};
  result.begin = std::ranges::mismatch(first, result.text).in1 - first.begin();
  return result;
}

std::string textOfPrompt(const Tokenizer &tokenizer, std::span<const int32_t> prompt) {
  std::string text = textOf(tokenizer, {prompt.begin(), prompt.end()});
  text.resize(wholeCharacters(text));
  return text;
}

std::string TextStream::push(int32_t token) {
  if (!tokenizer)
    return "";
  ids.push_back(token);
  std::string text = take(/*isEnd=*/false);
  if (!showsMarks || !tokenizer->hasToken(token))
    return text;
  std::string mark = tokenizer->markOf(token);
  bool isHidden = !mark.empty() && tokenizer->decode({&token, 1}).empty();
  return isHidden ? text + filter.push(mark) : text;
}

std::string TextStream::finish() { return tokenizer ? take(/*isEnd=*/true) + filter.finish() : ""; }

/// Passes the text of the ids that are not settled to the filter; before the end, without an incomplete character.
std::string TextStream::take(bool isEnd) {
  std::span<const int32_t> all = ids;
  auto [text, begin] = continuationOf(*tokenizer, all.first(settled), all.subspan(settled));
  begin = startOfCharacter(text, begin) + taken;
  size_t end = isEnd ? text.size() : wholeCharacters(text);
  if (end == text.size()) {
    settled = ids.size();
    taken = 0;
  } else if (end > begin) {
    taken += end - begin;
  }
  return end > begin ? filter.push(std::string_view(text).substr(begin, end - begin)) : "";
}

} // namespace espalier::rt
