// The library decomposes single characters and composes short runs. This file sorts the marks itself, because the
// library needs quadratic time for a run of marks.
#include "runtime/tokenizer/unicode_normal.h"

#include "runtime/utf8.h"

#include <algorithm>
#include <array>
#include <span>
#include <utf8proc.h>
#include <vector>

namespace espalier::rt {

namespace {

struct Range {
  char32_t first, last;
};

/// Characters that combine or decompose only since Unicode 10 or later. The published normalizers follow Unicode 9 and
/// leave these characters unchanged.
constexpr Range newerCombining[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785},
    {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
    {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99},
    {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1},
    {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};

bool isNewerCombining(char32_t c) {
  auto after = std::ranges::upper_bound(newerCombining, c, {}, &Range::first);
  return after != std::begin(newerCombining) && c <= std::prev(after)->last;
}

int combiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/// Converts characters to a normal form one by one. `pending` holds the characters that a later character may still
/// change.
class NormalWriter {
public:
  NormalWriter(NormalForm form, std::string &out)
      : composes(form == NormalForm::nfc || form == NormalForm::nfkc),
        options(form == NormalForm::nfkc || form == NormalForm::nfkd ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT
                                                                     : UTF8PROC_DECOMPOSE),
        out(out) {}

  void add(char32_t c) {
    std::array<utf8proc_int32_t, 32> parts; // the longest decomposition has 18
    int boundary = 0;
    auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                         static_cast<utf8proc_option_t>(options), &boundary);
    for (utf8proc_int32_t part : std::span(parts).first(static_cast<size_t>(count)))
      addPart(part);
  }

  void flush() {
    order();
    compose();
    write(pending.size());
  }

private:
  void addPart(utf8proc_int32_t c) {
    pending.push_back(c);
    if (combiningClass(c) != 0)
      return;
    // A starter ends the marks before it. It stays pending, because it may compose with a later character.
    if (pending.size() > 1) {
      pending.pop_back();
      order();
      pending.push_back(c);
      compose();
    }
    write(pending.size() - 1);
  }
  /// Sorts the marks after the first starter by class. The sort is stable.
  void order() {
    auto marks = std::span(pending);
    if (!marks.empty() && combiningClass(marks[0]) == 0)
      marks = marks.subspan(1);
    if (std::ranges::is_sorted(marks, {}, combiningClass))
      return;
    std::vector<std::pair<int, size_t>> places;
    for (size_t i = 0; i < marks.size(); ++i)
      places.emplace_back(combiningClass(marks[i]), i);
    std::ranges::sort(places);
    std::vector<utf8proc_int32_t> unordered(marks.begin(), marks.end());
    for (size_t i = 0; i < marks.size(); ++i)
      marks[i] = unordered[places[i].second];
  }
  void compose() {
    if (!composes)
      return;
    auto size = utf8proc_normalize_utf32(pending.data(), static_cast<utf8proc_ssize_t>(pending.size()),
                                         static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    pending.resize(static_cast<size_t>(size));
  }
  void write(size_t count) {
    for (size_t i = 0; i < count; ++i)
      appendUtf8(static_cast<char32_t>(pending[i]), out);
    pending.erase(pending.begin(), pending.begin() + static_cast<ptrdiff_t>(count));
  }

  bool composes;
  int options;
  std::string &out;
  std::vector<utf8proc_int32_t> pending; // one starter and the marks after it
};

/// Returns the lower case of letters that have one only since a later Unicode version than the library's.
char32_t newerLowerCase(char32_t c) {
  if (c >= 0x10d50 && c <= 0x10d65)
    return c + 0x20;
  if (c >= 0x16ea0 && c <= 0x16eb8)
    return c + 0x1b;
  switch (c) {
  case 0xa7cb:
    return 0x264;
  case 0xa7dc:
    return 0x19b;
  case 0x1c89:
  case 0xa7cc:
  case 0xa7ce:
  case 0xa7d2:
  case 0xa7d4:
  case 0xa7da:
    return c + 1;
  default:
    return c;
  }
}

} // namespace

std::string toNormalForm(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  NormalWriter writer(form, out);
  for (size_t at = 0; at < text.size();) {
    // ASCII characters are equal in every form, and only the last one of a run can combine with a mark.
    size_t ascii = at;
    while (ascii < text.size() && static_cast<uint8_t>(text[ascii]) < 0x80)
      ++ascii;
    if (ascii > at + 1) {
      writer.flush();
      out += text.substr(at, ascii - at - 1);
      at = ascii - 1;
    }
    DecodedChar c = decodeUtf8(text, at);
    if (c.isValid && !isNewerCombining(c.codePoint)) {
      writer.add(c.codePoint);
    } else {
      writer.flush();
      out += text.substr(at, c.bytes);
    }
    at += c.bytes;
  }
  writer.flush();
  return out;
}

std::string toLowerCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    DecodedChar c = decodeUtf8(text, at);
    std::string_view bytes = text.substr(at, c.bytes);
    at += c.bytes;
    if (c.codePoint == 0x130) {
      out += "i\u0307"; // the only letter whose lower case has two characters
    } else if (c.isValid) {
      auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(c.codePoint));
      appendUtf8(newerLowerCase(static_cast<char32_t>(lower)), out);
    } else {
      out += bytes;
    }
  }
  return out;
}

} // namespace espalier::rt
