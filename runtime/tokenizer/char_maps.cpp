// The published steps follow Unicode 8 and 9. The tables hold what the library, which follows Unicode 15, sees
// otherwise.
#include "runtime/tokenizer/char_maps.h"

#include "runtime/utf8.h"

#include <algorithm>
#include <span>
#include <utf8proc.h>

namespace espalier::rt {

namespace {

struct Range {
  char32_t first, last;
};

/// Marks since Unicode 10.
constexpr Range marksSince10[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xcf3, 0xcf3},     {0xd00, 0xd00},
    {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},
    {0x180f, 0x180f},   {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0xa8ff, 0xa8ff},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146},
    {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x1182c, 0x1183a}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193b, 0x1193e}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119d1, 0x119d7}, {0x119da, 0x119e0}, {0x119e4, 0x119e4}, {0x11a01, 0x11a0a},
    {0x11a33, 0x11a39}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99},
    {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47},
    {0x11d8a, 0x11d8e}, {0x11d90, 0x11d91}, {0x11d93, 0x11d97}, {0x11ef3, 0x11ef6}, {0x11f00, 0x11f01},
    {0x11f03, 0x11f03}, {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16fe4}, {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d},
    {0x1cf30, 0x1cf46}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}};

/// Marks since Unicode 9 without width.
constexpr Range marksOf9[] = {{0x8d4, 0x8e1},     {0x1885, 0x1886},   {0x1dfb, 0x1dfb},   {0xa8c5, 0xa8c5},
                              {0xa9bd, 0xa9bd},   {0x1123e, 0x1123e}, {0x11438, 0x1143f}, {0x11442, 0x11444},
                              {0x11446, 0x11446}, {0x11c30, 0x11c36}, {0x11c38, 0x11c3d}, {0x11c3f, 0x11c3f},
                              {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3}, {0x11cb5, 0x11cb6},
                              {0x1e000, 0x1e006}, {0x1e008, 0x1e018}, {0x1e01b, 0x1e021}, {0x1e023, 0x1e024},
                              {0x1e026, 0x1e02a}, {0x1e944, 0x1e94a}};

/// Ideographs as BERT counts them, with its gap at U+2B820.
constexpr Range ideographs[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
                                {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};

/// Format characters since Unicode 9.
constexpr Range formatSince9[] = {{0x890, 0x891}, {0x8e2, 0x8e2}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}};

/// What Nmt removes, and what it replaces by a space.
constexpr Range nmtRemoved[] = {{0x1, 0x8}, {0xb, 0xb}, {0xe, 0x1f}, {0x7f, 0x7f}, {0x8f, 0x8f}, {0x9f, 0x9f}};
constexpr Range nmtSpaces[] = {{0x9, 0xa},       {0xc, 0xd},       {0x1680, 0x1680}, {0x200b, 0x200f},
                               {0x2028, 0x2029}, {0x2581, 0x2581}, {0xfeff, 0xfeff}, {0xfffd, 0xfffd}};

bool isIn(std::span<const Range> ranges, char32_t c) {
  auto after = std::ranges::upper_bound(ranges, c, {}, &Range::first);
  return after != ranges.begin() && c <= std::prev(after)->last;
}

utf8proc_category_t categoryOf(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

} // namespace

void cleanForBert(char32_t c, std::string &out) {
  utf8proc_category_t category = categoryOf(c);
  bool isControl = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CO ||
                   (category == UTF8PROC_CATEGORY_CF && !isIn(formatSince9, c));
  bool isSpace = c == '\t' || c == '\n' || c == '\r' || category == UTF8PROC_CATEGORY_ZS ||
                 category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
  if (isSpace)
    out += ' ';
  else if (!isControl && c != 0xfffd)
    appendUtf8(c, out);
}

void spaceIdeographs(char32_t c, std::string &out) {
  bool isIdeograph = isIn(ideographs, c);
  out += isIdeograph ? " " : "";
  appendUtf8(c, out);
  out += isIdeograph ? " " : "";
}

void dropAccents(char32_t c, std::string &out) {
  bool isMark = categoryOf(c) == UTF8PROC_CATEGORY_MN && !isIn(marksSince10, c) && !isIn(marksOf9, c);
  if (!isMark && c != 0x1734)
    appendUtf8(c, out);
}

void dropMarks(char32_t c, std::string &out) {
  utf8proc_category_t category = categoryOf(c);
  bool isMark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME && !isIn(marksSince10, c);
  if (!isMark && c != 0x1cf2 && c != 0x1cf3)
    appendUtf8(c, out);
}

void normalizeAsNmt(char32_t c, std::string &out) {
  if (isIn(nmtSpaces, c))
    out += ' ';
  else if (!isIn(nmtRemoved, c))
    appendUtf8(c, out);
}

size_t graphemeEnd(std::string_view text, size_t position) {
  utf8proc_int32_t state = 0;
  DecodedChar c = decodeUtf8(text, position);
  size_t end = position + c.bytes;
  while (c.isValid && end < text.size()) {
    DecodedChar next = decodeUtf8(text, end);
    if (!next.isValid || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.codePoint),
                                                          static_cast<utf8proc_int32_t>(next.codePoint), &state))
      break;
    end += next.bytes;
    c = next;
  }
  return end;
}

} // namespace espalier::rt
