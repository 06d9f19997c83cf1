// A table by first byte is fast enough, because vocabularies have at most a few hundred added tokens.
#include "runtime/tokenizer/hf_added_tokens.h"

#include "runtime/tokenizer/hf_json.h"
#include "runtime/tokenizer/unicode_classes.h"
#include "runtime/utf8.h"

#include <algorithm>

namespace espalier::rt {

namespace {

uint8_t leadByte(const AddedToken &token) { return static_cast<uint8_t>(token.text[0]); }

} // namespace

std::vector<AddedToken> readAddedTokens(const std::string &file, const nlohmann::json &field) {
  std::vector<AddedToken> tokens;
  if (field.is_null())
    return tokens;
  if (!field.is_array())
    throw DataError(file, "field \"added_tokens\" is no list");
  for (const nlohmann::json &one : field) {
    AddedToken token;
    token.text = requiredField<std::string>(file, one, "content");
    int64_t id = requiredField<int64_t>(file, one, "id");
    if (token.text.empty() || id < 0 || id > 100'000'000)
      throw DataError(file, fmt::format("added token \"{}\" has id {}", token.text, id));
    token.id = static_cast<int32_t>(id);
    token.isSpecial = fieldOr(file, one, "special", false);
    token.isSingleWord = fieldOr(file, one, "single_word", false);
    token.stripsLeft = fieldOr(file, one, "lstrip", false);
    token.stripsRight = fieldOr(file, one, "rstrip", false);
    token.isNormalized = fieldOr(file, one, "normalized", !token.isSpecial);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : sorted(std::move(tokens)) {
  std::ranges::sort(sorted, [](const AddedToken &a, const AddedToken &b) {
    return leadByte(a) != leadByte(b)       ? leadByte(a) < leadByte(b)
           : a.text.size() != b.text.size() ? a.text.size() > b.text.size()
                                            : a.text < b.text;
  });
  firstOf.assign(257, 0);
  for (const AddedToken &token : sorted)
    ++firstOf[leadByte(token) + 1];
  for (size_t i = 1; i < firstOf.size(); ++i)
    firstOf[i] += firstOf[i - 1];
}

const AddedToken *AddedTokenFinder::match(std::string_view text, size_t at) const {
  auto lead = static_cast<uint8_t>(text[at]);
  for (uint32_t i = firstOf[lead]; i < firstOf[lead + 1]; ++i)
    if (text.substr(at).starts_with(sorted[i].text))
      return &sorted[i];
  return nullptr;
}

std::vector<AddedPiece> AddedTokenFinder::cut(std::string_view text) const {
  std::vector<AddedPiece> pieces;
  if (sorted.empty()) {
    if (!text.empty())
      pieces.push_back({0, text.size(), -1});
    return pieces;
  }
  const UnicodeClasses &classes = unicodeClasses();
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken *token = match(text, at);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->text.size();
    at = end;
    if (token->isSingleWord && ((begin > 0 && classes.isWordAt(text, charBefore(text, begin))) ||
                                (end < text.size() && classes.isWordAt(text, end))))
      continue;
    if (token->stripsLeft)
      while (begin > done && classes.at(text, charBefore(text, begin)).kind == CharClass::space)
        begin = charBefore(text, begin);
    if (token->stripsRight)
      while (end < text.size() && classes.at(text, end).kind == CharClass::space)
        end += decodeUtf8(text, end).bytes;
    if (begin < done)
      continue; // an earlier token with stripsRight has consumed this match
    if (begin > done)
      pieces.push_back({done, begin, -1});
    pieces.push_back({begin, end, token->id});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size())
    pieces.push_back({done, text.size(), -1});
  return pieces;
}

} // namespace espalier::rt
