// Unicode's normal forms and lower case of a text, as the published tokenizers' normalizers give them. Memory beyond
// the result follows the longest run of combining marks, not the text.
#pragma once

#include <string>
#include <string_view>

namespace espalier::rt {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// `text` in a normal form. Bytes that are no UTF-8 stay as they are. Example: "e\u0301" in nfc is "\u00e9", "\ufb01"
/// in nfkd is "fi". No form gives more than 11 times the bytes (U+FDFA in nfkd).
std::string toNormalForm(std::string_view text, NormalForm form);

/// Each character's lower case by itself: no rule looks at neighbours.
std::string toLowerCase(std::string_view text);

} // namespace espalier::rt
