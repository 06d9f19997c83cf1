// Normalizers that replace one character at a time, as HF's tokenizers do.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace espalier::rt {

/// Appends the characters that replace one character; a map that appends nothing removes the character.
using CharMap = void(char32_t c, std::string &out);

/// BertNormalizer, clean_text: removes control characters and U+FFFD, and makes white space a space.
CharMap cleanForBert;
/// BertNormalizer, handle_chinese_chars: puts spaces around ideographs.
CharMap spaceIdeographs;
/// BertNormalizer, strip_accents: removes marks without width (category Mn of Unicode 8).
CharMap dropAccents;
/// StripAccents: removes marks (category M of Unicode 9).
CharMap dropMarks;
/// Nmt: removes control characters, and makes other white space and joiners a space.
CharMap normalizeAsNmt;

/// Returns the end of the grapheme cluster that starts at `position` < text.size().
size_t graphemeEnd(std::string_view text, size_t position);

} // namespace espalier::rt
