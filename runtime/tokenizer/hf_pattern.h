// Translates regular expressions. Published tokenizers use Oniguruma (Ruby) with Unicode 16; this program uses PCRE2
// with an older Unicode version.
#pragma once

#include <string>

namespace espalier::rt {

/// Rewrites `pattern` so that PCRE2 matches what Oniguruma matches. The classes \s, \d, \w and \p{...} get the
/// characters that PCRE2's Unicode lacks. Example: "\s" becomes "[\x{9}-\x{d}\x{20}...]". Throws DataError naming
/// `file` for syntax with different meanings: nested sets, set intersection, and the option m.
std::string publishedPattern(const std::string &file, const std::string &pattern);

} // namespace espalier::rt
