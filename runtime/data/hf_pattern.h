// The published tokenizers' patterns are Ruby's (Oniguruma) under Unicode 16; ours are PCRE2's under an older Unicode.
#pragma once

#include <string>

namespace espalier::rt {

/// `pattern` written so that PCRE2 matches what Oniguruma does: \s, \d, \w and \p{...} get the characters that PCRE2's
/// Unicode lacks. Example: "\s" becomes "[\x{9}-\x{d}\x{20}...]". Throws DataError naming `file` for what has another
/// meaning in the two: sets inside sets and their intersection, and the option m.
std::string publishedPattern(const std::string &file, const std::string &pattern);

} // namespace espalier::rt
