#include "runtime/jinja/text.h"

#include "runtime/utf8.h"

#include <algorithm>
#include <fmt/format.h>
#include <utf8proc.h>

namespace espalier::rt::jinja {

namespace {

/// Characters whose upper case has several characters, as in Unicode's SpecialCasing.
constexpr std::pair<char32_t, std::u32string_view> specialUpper[] = {
    {0xDF, U"SS"},    {0x149, U"\u02BCN"}, {0x1F0, U"J\u030C"}, {0x587, U"\u0535\u0552"},
    {0xFB00, U"FF"},  {0xFB01, U"FI"},     {0xFB02, U"FL"},     {0xFB03, U"FFI"},
    {0xFB04, U"FFL"}, {0xFB05, U"ST"},     {0xFB06, U"ST"}};

int32_t categoryOf(char32_t character) { return utf8proc_category(static_cast<int32_t>(character)); }

bool isCased(char32_t c) { return isUpper(c) || isLower(c) || categoryOf(c) == UTF8PROC_CATEGORY_LT; }

void addUpper(char32_t character, std::u32string &out) {
  const auto *found = std::ranges::find(specialUpper, character, [](const auto &row) { return row.first; });
  if (found != std::end(specialUpper))
    out += found->second;
  else
    out += static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(character)));
}

void addTitle(char32_t character, std::u32string &out) {
  std::u32string upper;
  addUpper(character, upper);
  if (upper.size() == 1)
    upper[0] = static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(character)));
  for (size_t i = 0; i < upper.size(); ++i)
    out += i == 0 ? upper[i] : static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(upper[i])));
}

/// Whether a sigma at this position ends a word: a cased letter comes before it, and none after it.
bool isFinalSigma(std::u32string_view text, size_t at) {
  auto isIgnorable = [](char32_t c) {
    int32_t kind = categoryOf(c);
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
           kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' ||
           c == 0xB7 || c == 0x2019;
  };
  size_t before = at, after = at + 1;
  while (before > 0 && isIgnorable(text[before - 1]))
    --before;
  while (after < text.size() && isIgnorable(text[after]))
    ++after;
  return before > 0 && isCased(text[before - 1]) && !(after < text.size() && isCased(text[after]));
}

void addLower(std::u32string_view text, size_t at, std::u32string &out) {
  if (text[at] == 0x130)
    out += U"i\u0307";
  else if (text[at] == 0x3A3)
    out += isFinalSigma(text, at) ? U'\u03C2' : U'\u03C3';
  else
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(text[at])));
}

bool isAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::vector<std::string> splitWhite(std::string_view text, int64_t most, bool isFromRight) {
  std::vector<std::string> parts;
  for (text = stripped(text, isFromRight ? Side::Right : Side::Left); !text.empty();) {
    if (most >= 0 && std::ssize(parts) == most) {
      parts.emplace_back(stripped(text, isFromRight ? Side::Right : Side::Left));
      break;
    }
    size_t end = isFromRight ? text.size() : 0;
    while (isFromRight ? end > 0 : end < text.size()) {
      size_t from = isFromRight ? charBefore(text, end) : end;
      DecodedChar one = decodeUtf8(text, from);
      if (isSpace(one.codePoint))
        break;
      end = isFromRight ? from : end + one.bytes;
    }
    parts.emplace_back(isFromRight ? text.substr(end) : text.substr(0, end));
    text = isFromRight ? stripped(text.substr(0, end), Side::Right) : stripped(text.substr(end), Side::Left);
  }
  if (isFromRight)
    std::ranges::reverse(parts);
  return parts;
}

} // namespace

size_t charactersIn(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t afterCharacters(std::string_view text, size_t at, size_t count) {
  for (; count > 0 && at < text.size(); --count) {
    ++at;
    while (at < text.size() && (text[at] & 0xC0) == 0x80)
      ++at;
  }
  return at;
}

std::u32string decoded(std::string_view text) {
  std::u32string characters;
  for (size_t at = 0; at < text.size();) {
    DecodedChar one = decodeUtf8(text, at);
    characters += one.codePoint;
    at += one.bytes;
  }
  return characters;
}

std::string encoded(std::u32string_view characters) {
  std::string text;
  for (char32_t one : characters)
    appendUtf8(one, text);
  return text;
}

bool isSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool isLetter(char32_t c) {
  int32_t kind = categoryOf(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool isDigit(char32_t c) { return categoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool isPrintable(char32_t c) {
  int32_t kind = categoryOf(c);
  return c == ' ' || !(kind == UTF8PROC_CATEGORY_CN || kind >= UTF8PROC_CATEGORY_ZS);
}

bool isUpper(char32_t c) { return utf8proc_isupper(static_cast<int32_t>(c)); }

bool isLower(char32_t c) { return utf8proc_islower(static_cast<int32_t>(c)); }

std::string upper(std::string_view text) {
  std::u32string out;
  for (char32_t one : decoded(text))
    addUpper(one, out);
  return encoded(out);
}

std::string lower(std::string_view text) {
  std::u32string in = decoded(text), out;
  for (size_t i = 0; i < in.size(); ++i)
    addLower(in, i, out);
  return encoded(out);
}

std::string capitalized(std::string_view text) {
  std::u32string in = decoded(text), out;
  for (size_t i = 0; i < in.size(); ++i)
    i == 0 ? addTitle(in[0], out) : addLower(in, i, out);
  return encoded(out);
}

std::string titled(std::string_view text) {
  std::u32string in = decoded(text), out;
  for (size_t i = 0; i < in.size(); ++i)
    i > 0 && isCased(in[i - 1]) ? addLower(in, i, out) : addTitle(in[i], out);
  return encoded(out);
}

std::string swappedCase(std::string_view text) {
  std::u32string in = decoded(text), out;
  for (size_t i = 0; i < in.size(); ++i)
    if (isUpper(in[i]))
      addLower(in, i, out);
    else if (isLower(in[i]))
      addUpper(in[i], out);
    else
      out += in[i];
  return encoded(out);
}

std::string_view stripped(std::string_view text, Side side, std::optional<std::string_view> characters) {
  std::u32string set = decoded(characters.value_or(""));
  auto isRemoved = [&](char32_t c) { return characters ? set.find(c) != std::u32string::npos : isSpace(c); };
  while (side != Side::Right && !text.empty()) {
    DecodedChar first = decodeUtf8(text, 0);
    if (!isRemoved(first.codePoint))
      break;
    text.remove_prefix(first.bytes);
  }
  while (side != Side::Left && !text.empty()) {
    size_t last = charBefore(text, text.size());
    if (!isRemoved(decodeUtf8(text, last).codePoint))
      break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator, int64_t most,
                               bool isFromRight) {
  if (!separator)
    return splitWhite(text, most, isFromRight);
  std::vector<std::string> parts;
  while (most < 0 || std::ssize(parts) < most) {
    size_t at = isFromRight ? text.rfind(*separator) : text.find(*separator);
    if (at == std::string_view::npos)
      break;
    std::string_view before = text.substr(0, at), after = text.substr(at + separator->size());
    parts.emplace_back(isFromRight ? after : before);
    text = isFromRight ? before : after;
  }
  parts.emplace_back(text);
  if (isFromRight)
    std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> splitLines(std::string_view text, bool keepsEnds) {
  std::vector<std::string> lines;
  for (size_t begin = 0, at = 0; at < text.size();) {
    DecodedChar one = decodeUtf8(text, at);
    char32_t c = one.codePoint;
    bool isEnd = (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    size_t next = at + one.bytes;
    if (c == '\r' && next < text.size() && text[next] == '\n')
      ++next;
    if (isEnd || next >= text.size()) {
      lines.emplace_back(text.substr(begin, (keepsEnds || !isEnd ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  return lines;
}

std::string replaced(std::string_view text, std::string_view old, std::string_view with, int64_t most) {
  std::string out;
  size_t at = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    size_t found = text.find(old, at);
    if (found == std::string_view::npos || (old.empty() && at > text.size()))
      break;
    out += text.substr(at, found - at);
    out += with;
    at = found + old.size();
    if (old.empty()) { // between all characters and at both ends
      size_t next = afterCharacters(text, at, 1);
      if (next == at)
        return out;
      out += text.substr(at, next - at);
      at = next;
    }
  }
  return out + std::string(text.substr(std::min(at, text.size())));
}

int64_t occurrences(std::string_view text, std::string_view part) {
  if (part.empty())
    return static_cast<int64_t>(charactersIn(text)) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

std::string padded(std::string_view text, int64_t width, char place, std::string_view fill) {
  int64_t missing = width - static_cast<int64_t>(charactersIn(text));
  if (missing <= 0)
    return std::string(text);
  // str.center() of Python puts the odd character to the left if the width is odd.
  int64_t left = place == '>' ? missing : place == '<' ? 0 : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i)
    out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i)
    out += fill;
  return out;
}

std::string reprOfText(std::string_view text) {
  char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (char32_t c : decoded(text))
    if (c == static_cast<char32_t>(quote) || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c == '\n' || c == '\r' || c == '\t')
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    else if (isPrintable(c))
      appendUtf8(c, out);
    else
      out += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
             : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                           : fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  return out + quote;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text)
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '\'')
      out += "&#39;";
    else if (c == '"')
      out += "&#34;";
    else
      out += c;
  return out;
}

std::string jsonString(std::string_view text, bool wantsAscii) {
  constexpr std::string_view marks = "\"\\\n\r\t\b\f", letters = "\"\\nrtbf";
  std::string out = "\"";
  auto addEscape = [&](uint32_t unit) { out += fmt::format("\\u{:04x}", unit); };
  bool hasOthers = wantsAscii && !isAscii(text);
  for (char32_t c : decoded(text))
    if (size_t mark = c < 0x80 ? marks.find(static_cast<char>(c)) : std::string_view::npos;
        mark != std::string_view::npos)
      out += {'\\', letters[mark]};
    else if (c < 0x20 || (wantsAscii && c == 0x7F) || (hasOthers && c >= 0x80 && c < 0x10000))
      addEscape(c);
    else if (hasOthers && c >= 0x10000) {
      addEscape(0xD800 + ((c - 0x10000) >> 10));
      addEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else
      appendUtf8(c, out);
  return out + "\"";
}

} // namespace espalier::rt::jinja
